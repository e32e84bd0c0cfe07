"""`inv promote.*`, `inv rollback.*`, `inv promotions.*`: what a floating tag gives, and the way back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from scripts import records, sites, source, view
from scripts.catalogue import Image
from scripts.errors import Absent, InputError, SourceError
from scripts.progress import console, say
from scripts.records import Record
from scripts.registry import crane, image, reference
from scripts.registry.checks import REVISION, Verdict
from scripts.registry.crane import Document
from scripts.registry.image import INDEXES, Env, Named, Pushed
from scripts.registry.reference import Reference
from scripts.release import history, move, resolve
from scripts.release.history import Kept
from scripts.release.move import Holding, Move
from scripts.settings import Settings
from scripts.verify import Question

SHOWN_COMMITS = 10
VERBS = {history.PROMOTION: "gave way", history.ROLLBACK: "was taken back"}


@dataclass(frozen=True)
class Options:
    """How a tag is moved.

    Attributes:
        yes: do not ask on the terminal.
        dry_run: show the plan and change nothing.
        why: the reason for a promotion without a smoke job.
        smoke: whether a smoke job of the digest must be on record.
    """

    yes: bool = False
    dry_run: bool = False
    smoke: bool = True
    why: str = ""


def promote(settings: Settings, of: Image, context: Path, digest: str | bool, options: Options) -> None:
    """Move the floating tag of an image to a digest that passed.

    Args:
        digest: sha256:…; True: the digest of HEAD's pinned tag, else of the last pushed build on record.

    Raises:
        InputError: no floating tag; another repository's digest; a child in place of its index; no smoke job.
        Unfit: the digest fails a check.
        Overtaken, CredentialError, RegistryError: see `move.execute`.
    """
    floating = _floating(settings, of)
    if not options.smoke and not options.why.strip():
        raise InputError("A promotion without a smoke job needs a reason.", "give it with --why=…")
    with sites.readable(settings), sites.writing(settings, floating.host) as env:
        target, commit = resolve.resolved(
            settings, of, context, digest, ("", sites.architecture(settings)), env
        )
        result = resolve.fit(settings, Question(of, context, (str(target),), commit=commit))
        record = records.of_digest(settings.records, of.name, target.digest)
        _require_smoke(of, target, record, settings.cluster, options)
        began = datetime.now(UTC)
        before = _now(settings, of, floating, result.named, env)
        pushed = result.named.image
        after = _holding(target.digest, pushed) if pushed else Holding(target.digest)
        planned = Move(floating, history.PROMOTION, before, after, began)
        if _carried_out(settings, of, context, planned, options, env) and record:
            promoted = {"when": records.now(), "tag": str(floating), "why": options.why}
            record.add("promoted", promoted)
    _say_what_it_does_not(of, floating)


def rollback(
    settings: Settings, of: Image, context: Path, to: str, not_before: str, options: Options
) -> None:
    """Move the floating tag back to the last digest that was promoted and not taken back, or to another one.

    Args:
        to: sha256:… that passed before; empty: the last.
        not_before: a commit; a target that is older than it is warned of.

    Raises:
        InputError: there is no way back, or the target never passed.
        Overtaken, CredentialError, RegistryError: see `move.execute`.
    """
    floating = _floating(settings, of)
    with sites.readable(settings), sites.writing(settings, floating.host) as env:
        began = datetime.now(UTC)
        past, now = _told(floating, env)
        target = floating.at(_way_back(floating, now, past, to))
        pushed = _passed(settings, of, context, target)
        if not_before:
            _warn_if_older(context, pushed.labels.get(REVISION, ""), not_before)
        before = (_known(settings, of, now) or Holding(now)) if now else None
        planned = Move(floating, history.ROLLBACK, before, _holding(target.digest, pushed), began)
        _carried_out(settings, of, context, planned, options, env)
    _say_what_it_does_not(of, floating)


def promotions(settings: Settings, of: Image) -> None:
    """Print what the floating tag gave and gives now, and what became of moves that broke off."""
    floating = _floating(settings, of)
    with sites.asking(settings, of) as accesses:
        past, now = accesses(floating.host).ask(partial(_told, floating))[0]
    for (kept, digest), after in zip(past, [*(digest for _, digest in past[1:]), now], strict=False):
        what = f"{VERBS[kept.move]} to {after}" if digest != after else "not moved"
        print(f"{kept.when:%Y-%m-%dT%H:%M:%SZ}  {digest} {what} (kept as {kept.tag.tag})")
    print(f"now: {floating} gives {now or 'nothing: there is no such tag'}")
    for record in records.unfinished(settings.promotions, of.name, tag=str(floating)):
        print(f"{record.id} broke off ({record.data['state']}): {_truth(record.data, now)}")


def _told(floating: Reference, env: Env) -> tuple[list[tuple[Kept, str]], str]:
    """What the registry keeps of a floating tag, and what that gives now; empty: there is no such tag."""
    try:
        past = history.past(floating, env=env)
    except Absent:  # the repository
        return [], ""
    try:
        return past, crane.digest(floating, env=env)
    except Absent:
        return past, ""


def _floating(settings: Settings, of: Image) -> Reference:
    if not of.floating_tag:
        raise InputError(
            f"{of.name} has no floating tag: its consumers pin a digest.", f"inv pin.{of.task} writes one."
        )
    return reference.parse(f"{sites.repository(settings, of)}:{of.floating_tag}")


def _require_smoke(
    of: Image, target: Reference, record: Record | None, cluster: str, options: Options
) -> None:
    smoked = record.data.get("smoked", []) if record else []
    here = [run for run in smoked if run.get("cluster") == cluster and run["digest"] == target.digest]
    passed = bool(here) and here[-1]["verdict"] == "pass"
    if options.smoke and not passed:
        raise InputError(
            f"The last smoke job of {target} at {cluster} did not pass, or there is none on record here.",
            f"run inv smoke.{of.task} --ref={target.digest}, or give --no-smoke --why=…",
        )


def _now(settings: Settings, of: Image, floating: Reference, named: Named, env: Env) -> Holding | None:
    """What the tag gives; an index is not put in the place of its child, nor a child in that of its index."""
    try:
        document = crane.manifest(floating, env=env)
    except Absent:
        return None
    _refuse_relatives(floating, document, named)
    if known := _known(settings, of, document.digest):
        return known
    looked = image.look(floating.at(document.digest), sites.architecture(settings), env=env)
    return _holding(document.digest, looked.image) if looked.image else Holding(document.digest)


def _refuse_relatives(floating: Reference, document: Document, named: Named) -> None:
    digest = named.reference.digest
    inside = {entry["digest"]: entry.get("platform") for entry in document.data.get("manifests", [])}
    if digest in inside:
        raise InputError(
            f"{digest} is a child ({inside[digest]}) of the index {document.digest} that {floating} gives.",
            "promote an index: other platforms would lose their image.",
        )
    if named.kind in INDEXES and document.digest in {child.digest for child in named.children}:
        raise InputError(
            f"{digest} is an index, and {floating} gives its child {document.digest}.",
            "promote the child of the new index that was meant, by its own digest.",
        )


def _known(settings: Settings, of: Image, digest: str) -> Holding | None:
    """An image that is on record here, so that nobody need be asked."""
    record = records.of_digest(settings.records, of.name, digest)
    if not record:
        return None
    result = record.data["result"]
    return Holding(digest, result["labels"], record.data["created"], result["total"])


def _holding(digest: str, pushed: Pushed) -> Holding:
    return Holding(digest, pushed.labels, str(pushed.config.get("created", "")), pushed.total)


def _way_back(floating: Reference, now: str, past: list[tuple[Kept, str]], to: str) -> str:
    """The digest to go back to: not what is there, and nothing that was taken back before."""
    if to:
        return reference.parse(f"{floating.repository}@{to}").digest
    undone = {digest for kept, digest in past if kept.move == history.ROLLBACK} | {now}
    good = [digest for kept, digest in past if kept.move == history.PROMOTION and digest not in undone]
    if not good:
        raise InputError(f"No earlier promotion of {floating} is kept to go back to.", "give --to=sha256:…")
    return good[-1]


def _passed(settings: Settings, of: Image, context: Path, target: Reference) -> Pushed:
    """An image that passed: by this machine's records, else by a verdict of now.

    A way back may name what somebody else had put there.

    Raises:
        Unfit: it never passed.
    """
    record = records.of_digest(settings.records, of.name, target.digest)
    verdicts = {run["verdict"] for run in record.data.get("verified", [])} if record else set()
    if verdicts & {Verdict.PASS, Verdict.WARN}:
        with sites.asking(settings, of) as accesses:
            look = partial(image.look, target, sites.architecture(settings))
            named = accesses(target.host).ask(lambda env: look(env=env))[0]
    else:
        named = resolve.fit(settings, Question(of, context, (str(target),))).named
    if not named.image:
        raise InputError(f"{target} holds no image for this architecture.", "name another digest.")
    return named.image


def _warn_if_older(context: Path, revision: str, fix: str) -> None:
    commit = source.resolve(context, fix)
    try:
        if not source.contains(context, revision, commit):
            say(f"warning: revision {revision} of the target does not contain {commit}: the fault is in it.")
    except SourceError as failure:
        say(f"warning: whether the target contains {commit} is not known. {failure.what}")


def _commits(context: Path, planned: Move) -> Iterator[tuple[str, str]]:
    """What lies between the revisions of the two images, for the plan."""
    ends = [holding.labels.get(REVISION, "").removesuffix("-dirty") for holding in planned.ends]
    if len(ends) < 2 or ends[0] == ends[1]:
        return
    for what, pair in (("commits", ends), ("commits taken back", ends[::-1])):
        try:
            found = source.subjects(context, *pair)
        except SourceError as failure:
            found = [f"not known: {failure.what}"]
        if found:
            more = [f"and {len(found) - SHOWN_COMMITS} more"] if len(found) > SHOWN_COMMITS else []
            yield what, "; ".join([*found[:SHOWN_COMMITS], *more])


def _carried_out(
    settings: Settings, of: Image, context: Path, planned: Move, options: Options, env: Env
) -> bool:
    """Show the plan, ask, and move. False: nothing was to be done, or nothing was wanted."""
    view.table("Plan", dict([*planned.rows(), *_commits(context, planned)]))
    if planned.before and planned.before.digest == planned.after.digest:
        say(f"{planned.floating} gives that digest already: nothing to do.")
        return False
    if options.dry_run:
        say("dry run: nothing was changed.")
        return False
    _confirm(options)
    facts: dict[str, Any] = {
        "tag": str(planned.floating),
        "how": planned.how,
        "before": planned.before.digest if planned.before else "",
        "after": planned.after.digest,
        "why": options.why,
    }
    name = records.name(f"{planned.how}-{of.task}", planned.after.digest.removeprefix("sha256:"))
    move.execute(planned, records.create(settings.promotions, of.name, name, **facts), env)
    print(f"{planned.floating} gives {planned.after.digest}")
    return True


def _confirm(options: Options) -> None:
    if options.yes:
        return
    if not sys.stdin or not sys.stdin.isatty():
        raise InputError("Nobody is asked where there is no terminal.", "look at the plan, then give --yes.")
    try:
        answer = console.input("Move it? [y/N] ", markup=False).strip().lower()
    except (EOFError, UnicodeDecodeError):
        answer = ""
    if answer not in ("y", "yes"):
        raise InputError("It was not moved: the answer was not yes.")


def _truth(data: dict[str, Any], now: str) -> str:
    """What is true of a move that broke off, by what the registry gives now, and what to do."""
    if now == data["after"]:
        return "the tag was moved; nothing is left to do."
    if now == data["before"]:
        return "the tag was not moved; give the command again."
    return f"the tag gives neither {data['before'] or 'nothing'} nor {data['after']}: somebody else moved it."


def _say_what_it_does_not(of: Image, floating: Reference) -> None:
    say(f"Nodes that hold {floating} already keep the old image: Kubernetes pulls a tag only IfNotPresent.")
    if of.lock and of.lock.resyncs:
        say(f"{of.lock.package} is deployed by {of.lock.path}, from which workers install at their start.")
