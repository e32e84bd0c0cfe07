"""Which digest a person means, and whether it is fit."""

from __future__ import annotations

from pathlib import Path

from scripts import records, sites, source, verify, view
from scripts.catalogue import Image
from scripts.errors import Absent, InputError, Unfit
from scripts.progress import say
from scripts.registry import crane, reference
from scripts.registry.checks import Result, Verdict
from scripts.registry.image import Env
from scripts.registry.reference import Reference
from scripts.settings import Settings


def resolved(
    settings: Settings,
    of: Image,
    context: Path,
    digest: str | bool,
    shape: tuple[str, str],
    env: Env,
) -> tuple[Reference, str]:
    """The digest that was named, or the one of HEAD's pinned tag, or of the last build on record; says which.

    With it comes the commit that it must be of: HEAD's, with its own tag; else empty.

    Args:
        digest: sha256:…, alone or after the image's own repository; True: HEAD's.
        shape: variant and architecture of HEAD's pinned tag.

    Raises:
        InputError: none was named, it is none, or it is of another repository.
    """
    repository = sites.repository(settings, of)
    if not digest:
        raise InputError(
            "No digest was named.", "give --digest=sha256:…, or --digest alone for HEAD's build."
        )
    if isinstance(digest, str):
        named = reference.parse(digest if "@" in digest else f"{repository}@{digest}")
        if named.repository != repository:
            raise InputError(f"{named} is not of {repository}.", "name a digest of that repository.")
        return named, ""
    revision = source.checkout(context).revision
    variant, architecture = shape
    pinned = reference.parse(f"{repository}:{of.pinned_tag(variant, revision, architecture)}")
    try:
        found = pinned.at(crane.digest(pinned, env=env))
        say(f"HEAD is {pinned}: {found.digest}")
        return found, revision
    except Absent:
        record = records.pushed(settings.records, of.name)
        found = reference.parse(record.data["result"]["reference"])
        if found.repository != repository:
            raise InputError(
                f"The last build on record is {found}, not of {repository}.", "name a digest."
            ) from None
        say(f"There is no {pinned}; the last build on record ({record.id}) is {found.digest}")
    return found, ""


def fit(settings: Settings, question: verify.Question) -> Result:
    """The verdict over one image that passed, with warnings or without.

    Raises:
        Unfit: it did not; the verdict is printed.
    """
    result = verify.verify(settings, question)[0]
    if result.verdict is Verdict.FAIL:
        view.verdict([result])
        raise Unfit(
            f"{result.named.reference} is not fit; nothing was changed.", "the failed rows say what to do."
        )
    return result
