"""Moving a floating tag: kept, compared, moved, read back; the record says how far it came.

A registry has no compare-and-swap. So the tag is compared as late as can be, read back at once, and whoever
moves it writes another tag first, by which two who were at it together are told of each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from scripts import records
from scripts.errors import IrisImagesError, Overtaken
from scripts.progress import say, size
from scripts.records import Record
from scripts.registry import crane
from scripts.registry.checks import PIN_LABEL, REVISION
from scripts.registry.image import Env
from scripts.registry.reference import Reference
from scripts.release import history
from scripts.release.history import Kept


@dataclass(frozen=True)
class Holding:
    """An image that a tag gives, or will give; `total` in bytes. What is not known is empty or 0."""

    digest: str
    labels: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    total: int = 0

    def __str__(self) -> str:
        revision = f"revision {self.labels.get(REVISION, 'not labelled')}"
        return ", ".join(part for part in (self.digest, revision, self.created) if part)


@dataclass(frozen=True)
class Move:
    """A plan: a floating tag, what it gives now (None: there is no such tag), and what it will give.

    Attributes:
        how: history.PROMOTION or history.ROLLBACK.
        began: when the tag was looked at (UTC).
    """

    floating: Reference
    how: str
    before: Holding | None
    after: Holding
    began: datetime

    @property
    def ends(self) -> list[Holding]:
        """What the tag gives now, where it gives something, and what it will give."""
        return [end for end in (self.before, self.after) if end]

    def rows(self) -> Iterator[tuple[str, str]]:
        """The plan for a person: now, then, and what changes between the two."""
        yield "tag", str(self.floating)
        yield "now", str(self.before or "no such tag")
        yield "will be", str(self.after)
        if self.before:
            yield from self._changes(self.before)

    def _changes(self, before: Holding) -> Iterator[tuple[str, str]]:
        for name in sorted({*before.labels, *self.after.labels}):
            old, new = before.labels.get(name, "none"), self.after.labels.get(name, "none")
            if name.startswith(PIN_LABEL) and old != new:
                yield name.removeprefix(PIN_LABEL), f"{old} → {new}"
        if before.total and before.total != self.after.total:
            yield "size", f"{size(before.total)} → {size(self.after.total)}"


def execute(move: Move, record: Record, env: Env) -> None:
    """Move the tag. The record's state is, in this order: planned, kept, moving, moved, done; or failed.

    Raises:
        Overtaken: somebody else moves the tag; both digests are in the sentence.
        CredentialError, RegistryError, CommandTimeout: the registry refused, or did not answer.
    """
    try:
        own = _keep(move, record, env)
        record.update(state="moving")
        crane.tag(move.floating.at(move.after.digest), move.floating.tag, env=env)
        record.update(state="moved")
        _read_back(move, own, env)
    except IrisImagesError as failure:
        record.update(failed_in=record.data["state"], state="failed", error=str(failure))
        raise
    record.update(state="done", ended=records.now())


def _keep(move: Move, record: Record, env: Env) -> Kept | None:
    """Keep what the tag gives, then make sure that it gives it still."""
    if not move.before:
        return None
    own = history.new(move.floating, move.how)
    record.update(way_back=str(own.tag))
    crane.tag(move.floating.at(move.before.digest), own.tag.tag, env=env)
    record.update(state="kept")
    seen = crane.digest(move.floating, env=env)
    if seen != move.before.digest:
        raise Overtaken(
            f"{move.floating} gives {seen}; the plan saw {move.before.digest}. Nothing was moved.",
            "look at what it gives, and decide again.",
        )
    return own


def _read_back(move: Move, own: Kept | None, env: Env) -> None:
    seen = crane.digest(move.floating, env=env)
    if seen != move.after.digest:
        raise Overtaken(
            f"{move.floating} was moved to {move.after.digest}, but gives {seen}: others moved it, too.",
            "agree with them which one it shall be.",
        )
    for other in history.kept(move.floating, env=env):
        if other.when >= move.began.replace(microsecond=0) and other != own:
            say(f"warning: others moved {move.floating} at the same time ({other.tag.tag}): ask them.")
