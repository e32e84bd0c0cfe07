"""`inv pins.check`: every mention of an image in files, and whether it can be relied on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from scripts import sites
from scripts.catalogue import Image
from scripts.errors import Absent, CommandTimeout, CredentialError, RegistryError
from scripts.registry import access, crane, reference
from scripts.registry.checks import Check, Verdict
from scripts.release import references
from scripts.release.references import Found
from scripts.settings import Settings

FOUND = "found"


def check(settings: Settings, images: Sequence[Image], paths: Sequence[Path]) -> list[Check]:
    """A row for each mention of an image of the catalogue.

    A constant, a variable or a key must hold a digest that the registry has; in prose the same is only warned
    of, and so is a digest that none of them holds. A comment tells of what was, and is not asked about.

    Args:
        paths: files, or folders for what git tracks in them.

    Raises:
        InputError: a path that is neither.
    """
    repositories = {one for image in images for one in (image.repository, sites.repository(settings, image))}
    found = references.scan(paths, repositories)
    held = {one.digest for one in found if one.name and one.digest and not one.comment}
    with sites.asking(settings, *images) as accesses:

        @cache
        def answer(text: str) -> str:
            return _answer(text, accesses)

        return [_row(one, held, answer(one.text) if _asked(one) else "") for one in found]


def _asked(one: Found) -> bool:
    """Whether the registry is asked: of what somebody may pull."""
    return not one.comment and one.kind in ("pinned", "floating")


def _row(one: Found, held: set[str], answer: str) -> Check:
    holder = "a comment" if one.comment else one.name or "prose"
    seen = ", ".join(part for part in (f"{holder}: {one.text}", one.kind, answer) if part)
    troubles = "; ".join(_troubles(one, held, answer))
    bad = Verdict.FAIL if one.name and not one.comment else Verdict.WARN
    verdict = bad if troubles else Verdict.PASS
    return Check(f"{one.file}:{one.line}", "a digest that the registry has", seen, verdict, troubles)


def _troubles(one: Found, held: set[str], answer: str) -> Iterator[str]:
    if one.kind == "truncated":
        yield "the digest is cut short: write it in full"
    if one.comment:
        return
    if one.kind == "floating":
        yield "it floats, and a node keeps what it had under that tag: write a digest with inv pin.*"
    if one.kind == "pinned" and answer != FOUND:
        yield "it cannot be pulled: correct it, or push it"
    if one.kind == "pinned" and one.digest and held and one.digest not in held:
        yield "no constant holds this digest: a stale copy"


def _answer(text: str, accesses: access.Accesses) -> str:
    """What a registry says of a reference: found, absent, or why that is not known."""
    named = reference.parse(text)
    try:
        accesses(named.host).ask(lambda env: crane.digest(named, env=env))
    except Absent:
        return "absent"
    except (CredentialError, RegistryError, CommandTimeout) as failure:
        return f"not known: {failure.what}"
    return FOUND
