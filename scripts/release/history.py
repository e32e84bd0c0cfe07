"""What a floating tag gave, kept in the registry itself: before each move another tag gets that digest.

`tpu-before-20261201T120000Z-1a2b` gives what `tpu` gave before it was promoted at that time, `tpu-undone-…`
what a rollback took away. So whoever can read the repository can go back, from any machine.
"""

from __future__ import annotations

import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from scripts.errors import Absent
from scripts.registry import crane
from scripts.registry.image import Env
from scripts.registry.reference import Reference

PROMOTION, ROLLBACK = "before", "undone"
STAMP = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class Kept:
    """A tag that keeps what a floating tag gave: how that was moved, when (UTC), and a word of its own."""

    floating: Reference
    move: str
    when: datetime
    word: str

    @property
    def tag(self) -> Reference:
        """The tag itself."""
        return replace(self.floating, tag=f"{self.floating.tag}-{self.move}-{self.when:{STAMP}}-{self.word}")


def new(floating: Reference, move: str) -> Kept:
    """The tag for a move that happens now."""
    return Kept(floating, move, datetime.now(UTC).replace(microsecond=0), secrets.token_hex(2))


def kept(floating: Reference, *, env: Env = None) -> list[Kept]:
    """What the registry keeps of a floating tag, the oldest first. Errors: see `crane.digest`."""
    found = filter(None, (_kept(floating, tag) for tag in crane.tags(floating, env=env)))
    return sorted(found, key=lambda one: (one.when, one.word))


def past(floating: Reference, *, env: Env = None) -> list[tuple[Kept, str]]:
    """What the registry keeps of a floating tag, each with its digest, the oldest first."""
    found = kept(floating, env=env)
    with ThreadPoolExecutor(8) as pool:
        digests = pool.map(lambda one: _digest(one, env), found)
        return [(one, digest) for one, digest in zip(found, digests, strict=True) if digest]


def _kept(floating: Reference, tag: str) -> Kept | None:
    """What a tag keeps; None: it is none of ours."""
    pattern = rf"{re.escape(floating.tag)}-({PROMOTION}|{ROLLBACK})-(\d{{8}}T\d{{6}}Z)-([0-9a-f]{{4}})"
    match = re.fullmatch(pattern, tag)
    try:
        return match and Kept(
            floating, match[1], datetime.strptime(match[2], STAMP).replace(tzinfo=UTC), match[3]
        )
    except ValueError:  # no such day
        return None


def _digest(one: Kept, env: Env) -> str:
    """What it gives; empty: somebody removed it."""
    try:
        return crane.digest(one.tag, env=env)
    except Absent:
        return ""
