"""`inv pin.*`: writes a digest that passed into the launcher that uses it, and where it is from beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scripts import command, markdown, records, sites
from scripts.catalogue import Image
from scripts.errors import InputError, SourceError
from scripts.expected import label
from scripts.progress import say
from scripts.records import Record
from scripts.registry import reference
from scripts.registry.checks import REVISION, Result
from scripts.registry.image import Pushed
from scripts.registry.reference import Reference
from scripts.release import launcher, resolve
from scripts.release.launcher import Place, Rewrite
from scripts.settings import Settings
from scripts.source import unset
from scripts.verify import Question

GIT_SECONDS = 60


@dataclass(frozen=True)
class Holder:
    """The launcher that holds the digest of one variant and architecture of an image.

    Attributes:
        root: the checkout that the launcher is in.
    """

    of: Image
    root: Path
    variant: str
    architecture: str

    @property
    def places(self) -> dict[Place, str]:
        """Where it holds something, and what: "reference", "digest", "tag", "revision" or a pin's name."""
        here = (self.variant, self.architecture)
        found = [one for one in self.of.launcher if (one.variant, one.architecture) == here]
        return {Place(Path(one.file), one.name, one.key, one.field): one.holds for one in found}


@dataclass(frozen=True)
class Options:
    """How a digest is written: why (one line), only shown, committed."""

    reason: str = ""
    dry_run: bool = False
    commit: bool = False


def pin(settings: Settings, holder: Holder, context: Path, digest: str | bool, options: Options) -> None:
    """Write a digest that passed into a launcher; where no launcher holds the image, print its record.

    What was there is on record before anything is written.

    Args:
        context: the checkout whose commits hold the Dockerfile.
        digest: sha256:…; True: the digest of HEAD's pinned tag, else of the last pushed build.

    Raises:
        InputError: no digest, or one of another repository.
        ConfigurationError: a value is not there exactly once; names file and line.
        Unfit: the digest fails a check.
        SourceError: it is to be committed, and the launcher differs from its commit.
    """
    of = holder.of
    result = _passed(settings, holder, context, digest)
    target, pushed = result.named.reference, result.named.image
    if not holder.places or not pushed:
        say(f"No launcher holds {of.name} for {holder.architecture}: its digest goes where people read it.")
        print(markdown.render(_recorded(settings, of, target).data), end="")
        return
    tag = of.pinned_tag(holder.variant, pushed.labels.get(REVISION, ""), holder.architecture)
    changes = {place: _value(holds, target, pushed, tag) for place, holds in holder.places.items()}
    before = {place: launcher.locate((holder.root / place.file).read_bytes(), place) for place in changes}
    if all(before[place].value == value for place, value in changes.items()):
        say(f"{holder.root} holds {target} already: nothing to do.")
        return
    reason = options.reason or f"passed inv verify.{of.task}"
    text = launcher.note(tag, f"{datetime.now(UTC):%Y-%m-%d}", pushed.labels.get(REVISION, ""), reason)
    made = launcher.rewrites(holder.root, changes, dict.fromkeys(changes, text))
    if _shown(made, holder.root, options):
        kept = [_kept(place, before[place], changes[place]) for place in changes]
        _written(settings, holder, made, {"reference": str(target), "places": kept})
        if options.commit:
            _commit(holder.root, made, _message(of, target, tag, reason, result))
        print(f"{target} in {', '.join(str(one.path) for one in made)}")


def revert(settings: Settings, holder: Holder, options: Options) -> None:
    """Write back what the last pin of a launcher replaced.

    Raises:
        InputError: no pin is on record, or somebody changed the value since.
    """
    record = _last(settings, holder)
    places = {_place(entry): entry for entry in record.data["places"]}
    for place, entry in places.items():
        now = launcher.current((holder.root / place.file).read_bytes(), place)
        if now != entry["after"]:
            raise InputError(
                f"{place} of {holder.root / place.file} is {now}; the pin wrote {entry['after']}.",
                "somebody changed it since: look at it, and change it by hand.",
            )
    made = launcher.rewrites(
        holder.root,
        {place: entry["before"] for place, entry in places.items()},
        {place: entry["note"] for place, entry in places.items()},
    )
    if _shown(made, holder.root, options):
        launcher.write(made)
        record.update(state="reverted", reverted=records.now())
        if options.commit:
            _commit(holder.root, made, f"Take back the pin of {record.data['reference']}")
        print(f"{', '.join(entry['before'] for entry in places.values())}")


def _passed(settings: Settings, holder: Holder, context: Path, digest: str | bool) -> Result:
    of, shape = holder.of, (holder.variant, holder.architecture)
    host = reference.parse(f"{sites.repository(settings, of)}:tag").host
    with sites.asking(settings, of) as accesses:
        asked = accesses(host)
        (target, commit), _ = asked.ask(
            lambda env: resolve.resolved(settings, of, context, digest, shape, env)
        )
        question = Question(of, context, (str(target),), holder.architecture, commit)
        return resolve.fit(settings, question)


def _value(holds: str, target: Reference, pushed: Pushed, tag: str) -> str:
    fixed = {
        "reference": str(target),
        "digest": target.digest,
        "tag": tag,
        "revision": pushed.labels.get(REVISION, ""),
    }
    return fixed.get(holds) or pushed.labels.get(label(holds), "")


def _shown(made: Sequence[Rewrite], root: Path, options: Options) -> bool:
    """Show the difference; False: nothing is to be written."""
    for one in made:
        print(launcher.diff(one.before, one.after, str(one.path.relative_to(root))), end="")
    if options.commit:
        _require_clean(root, made)
    if options.dry_run:
        say("dry run: nothing was changed.")
    return not options.dry_run


def _written(settings: Settings, holder: Holder, made: Sequence[Rewrite], facts: Mapping[str, Any]) -> None:
    where = {"launcher": str(holder.root.resolve()), "variant": holder.variant}
    name = records.name(f"pin-{holder.of.task}", holder.variant or "image")
    record = records.create(
        settings.pins, holder.of.name, name, architecture=holder.architecture, **where, **facts
    )
    launcher.write(made)
    record.update(state="done")


def _kept(place: Place, before: launcher.Located, after: str) -> dict[str, Any]:
    where = {"file": str(place.file), "name": place.name, "key": list(place.key), "field": place.field}
    return {**where, "before": before.value, "note": before.note, "after": after}


def _place(entry: Mapping[str, Any]) -> Place:
    return Place(Path(entry["file"]), entry["name"], tuple(entry["key"]), entry["field"])


def _last(settings: Settings, holder: Holder) -> Record:
    here = (str(holder.root.resolve()), holder.variant, holder.architecture)
    for record in records.newest_first(settings.pins, holder.of.name):
        data = record.data
        if data["state"] != "reverted" and here == (data["launcher"], data["variant"], data["architecture"]):
            return record
    raise InputError(
        f"No pin of {holder.of.name} in {holder.root} is on record.", "there is nothing to take back."
    )


def _recorded(settings: Settings, of: Image, target: Reference) -> Record:
    found = records.of_digest(settings.records, of.name, target.digest)
    if not found:
        raise InputError(f"{target} is not on record.", f"inv verify.{of.task} --ref={target.digest}")
    return found


def _require_clean(root: Path, made: Sequence[Rewrite]) -> None:
    changed = _git(root, "status", "--porcelain", "--", *(str(one.path.resolve()) for one in made))
    if changed:
        raise SourceError(f"The launcher differs from its commit: {changed}.", "commit or stash that first.")


def _commit(root: Path, made: Sequence[Rewrite], message: str) -> None:
    _git(root, "commit", "--quiet", "--message", message, "--", *(str(one.path.resolve()) for one in made))
    say(f"committed {_git(root, 'rev-parse', 'HEAD')}; nothing was pushed.")


def _message(of: Image, target: Reference, tag: str, reason: str, result: Result) -> str:
    rows = "\n".join(f"{row.verdict} {row.check}: {row.seen}" for row in result.checks)
    return (
        f"Pin {of.name} to {tag}\n\n{target}\n{reason}\n\nVerified {result.when}: {result.verdict}\n{rows}\n"
    )


def _git(root: Path, *words: str) -> str:
    return command.output(["git", "-C", root, *words], timeout=GIT_SECONDS, env=unset())
