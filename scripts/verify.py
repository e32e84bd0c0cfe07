"""`inv verify.*`: whether a pushed image is fit to run, and what each word of the verdict stands on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from scripts import expected, inside, records, sites, target
from scripts.catalogue import ARCHITECTURES, Image, Inside, Lock
from scripts.errors import (
    Absent,
    CommandTimeout,
    CredentialError,
    InputError,
    RegistryError,
    SourceError,
)
from scripts.pins import lock
from scripts.pins.lock import Locked
from scripts.records import Record
from scripts.registry import access, checks, crane, image, reference
from scripts.registry.access import Accesses
from scripts.registry.checks import Check, Result, Verdict
from scripts.registry.image import Env, Named, Pushed
from scripts.registry.reference import Reference
from scripts.settings import Settings
from scripts.target import Target


@dataclass(frozen=True)
class Question:
    """What a person asked to be verified.

    Attributes:
        refs: tags, digests or whole references; none: the last pushed build on record.
        context: the checkout whose commits hold the Dockerfile.
        architecture, commit: what the image must be of; empty: what the record or the tag says.
        lock: the path of a lock in place of the one at the pinned commit.
        inside: what is read from the layers.
    """

    image: Image
    context: Path
    refs: tuple[str, ...] = ()
    architecture: str = ""
    commit: str = ""
    lock: str = ""
    inside: tuple[Inside, ...] = ()


@dataclass(frozen=True)
class Looked:
    """One reference, what it gives, and whether a login was needed to see it."""

    target: Target
    named: Named
    login: bool


def verify(settings: Settings, question: Question) -> list[Result]:
    """Verify every image that was named; references of one digest are one image.

    Each result is added to the record of the image on this machine; one without a record gets one.

    Raises:
        InputError, SourceError: a reference or a commit that cannot be.
        Absent, CredentialError, RateLimited, RegistryError, CommandTimeout: the image itself cannot be read.
    """
    if question.architecture not in ("", *ARCHITECTURES):
        raise InputError(
            f"{question.architecture!r} is no architecture.", f"one of {', '.join(ARCHITECTURES)}."
        )
    if question.lock and not question.image.lock:
        raise InputError(f"{question.image.name} has no lock to agree with.", "leave --lock out.")
    targets = [target.named(settings, question.image, text) for text in question.refs or (None,)]
    with sites.asking(settings, question.image) as accesses:
        groups: dict[str, list[Looked]] = {}
        with ThreadPoolExecutor(1) as pool:
            for one in targets:
                pool.submit(_prepare, question, one)
                looked = _look(settings, question, one, accesses)
                groups.setdefault(str(looked.named.reference), []).append(looked)
        return [_verified(settings, question, group, accesses) for group in groups.values()]


def _prepare(question: Question, one: Target) -> None:
    """Read the Dockerfile of the commit while the registry answers, for time only: it is kept in a cache."""
    commit, _ = expected.revision(question.context, question.commit, one.reference, one.record)
    if commit:
        expected.dockerfile_at(question.context, commit.removesuffix("-dirty"), question.image.dockerfile)


def _look(settings: Settings, question: Question, one: Target, accesses: Accesses) -> Looked:
    wanted = _architecture(settings, question, one)
    asked = accesses(one.reference.host)
    named, login = asked.ask(lambda env: image.look(one.reference, wanted, env=env))
    return Looked(one, named, login)


def _architecture(settings: Settings, question: Question, one: Target) -> str:
    default = sites.architecture(settings)
    return expected.architecture(question.architecture, one.reference, one.record, default)


def _verified(settings: Settings, question: Question, group: list[Looked], accesses: Accesses) -> Result:
    first, named = group[0], group[0].named
    record = next(
        (looked.target.record for looked in group if looked.target.record), None
    ) or records.of_digest(settings.records, question.image.name, named.reference.digest)
    names = tuple(str(looked.target.reference) for looked in group)
    wanted = _architecture(settings, question, Target(first.target.reference, record))
    rows = [
        *checks.of_named(named, names, wanted),
        access.readable(named.reference.repository, login=first.login),
        *_others(question.image, record, accesses),
        *_tag(record, named, names, accesses),
        *_tag_and_digest([looked.target.reference for looked in group], accesses),
    ]
    if not named.image:
        rows.append(checks.no_image(wanted))
    else:
        rows += _of_image(settings, question, named, named.image, record, first.target.reference, wanted)
        if question.inside:
            env = accesses(named.reference.host).env(login=first.login)
            rows += inside.check(named.image, question.inside, env)
    result = Result(names, named, tuple(rows), _evidence(first), records.now())
    if kept := record or target.record(settings, question.image, named):
        kept.add("verified", result.data())
    return result


def _of_image(
    settings: Settings,
    question: Question,
    named: Named,
    pushed: Pushed,
    record: Record | None,
    asked: Reference,
    architecture: str,
) -> Iterator[Check]:
    commit = expected.revision(question.context, question.commit, asked, record)
    seen = pushed.labels.get(checks.REVISION, "")
    wanted = expected.of(question.context, question.image, record, commit, architecture, seen)
    yield from checks.of_image(pushed, question.image, wanted)
    yield checks.of_annotations(pushed, named.annotations)
    yield from _lock(settings, question, pushed, wanted.pins or {})


def _others(of: Image, record: Record | None, accesses: Accesses) -> Iterator[Check]:
    """What else a consumer pulls: the wheel set that the build took, and what the table calls public."""
    wheels = record.data.get("inputs", {}).get("WHEELHOUSE", "") if record else ""
    if wheels:
        found = reference.parse(wheels)
        yield accesses(found.host).check(wheels, lambda env: crane.manifest(found, env=env))
    for repository in of.public:
        place = reference.parse(f"{repository}:tag")
        yield accesses(place.host).check(repository, partial(_tags, place))


def _tags(repository: Reference, env: Env) -> object:
    return crane.tags(repository, env=env)


def _tag(record: Record | None, named: Named, names: tuple[str, ...], accesses: Accesses) -> Iterator[Check]:
    """Whether the tag that a build gave still gives its digest."""
    if not record or not record.built:
        return
    built, tag = record.data["result"]["digest"], reference.parse(record.data["destination"])
    expectation = f"{tag} gives {built} (record {record.id})"
    step = f"somebody moved the tag; verify what was built with --ref={built}."
    if str(tag) in names:
        yield _compared(named.reference.digest, built, expectation, step)
    else:
        yield _gives(tag, built, expectation, step, accesses)


def _tag_and_digest(references: list[Reference], accesses: Accesses) -> Iterator[Check]:
    """Of a reference with both: whether the tag gives the digest, which alone is asked for."""
    for named in references:
        if named.tag and named.digest:
            step = "the tag was moved, or never was of this digest."
            yield _gives(replace(named, digest=""), named.digest, str(named), step, accesses)


def _gives(tag: Reference, wanted: str, expectation: str, step: str, accesses: Accesses) -> Check:
    """Whether a tag gives a digest now. A question without an answer is a failed row, not the end."""
    try:
        now = accesses(tag.host).ask(lambda env: crane.digest(tag, env=env))[0]
    except Absent:
        now = "no such tag"
    except (CredentialError, RegistryError, CommandTimeout) as failure:
        return Check("tag", expectation, f"not known: {failure.what}", Verdict.FAIL, "verify again.")
    return _compared(now, wanted, expectation, step)


def _compared(now: str, wanted: str, expectation: str, step: str) -> Check:
    """The row of a tag whose digest is known."""
    if now == wanted:
        return Check("tag", expectation, now, Verdict.PASS)
    return Check("tag", expectation, now, Verdict.FAIL, step)


def _lock(settings: Settings, question: Question, pushed: Pushed, pins: Mapping[str, str]) -> Iterator[Check]:
    """Whether the lock and the image agree on the package that matters.

    Where the lock is comes from the Dockerfile or the build's record, never from a label: whoever pushed the
    image wrote that.
    """
    table = question.image.lock
    if not table:
        return
    repository, commit = (pins.get(expected.label(name), "") for name in (table.repository, table.commit))
    where = question.lock or f"{table.path} of {repository or '?'} at {commit or '?'}"
    try:
        text = (
            Path(question.lock).read_text()
            if question.lock
            else lock.fetched(settings.cache, repository, commit, table.path)
        )
        found = lock.entries(text, table.package)
    except (SourceError, OSError, UnicodeDecodeError) as failure:
        step = "check the repository, or give the lock with --lock."
        yield Check("lock", f"{table.package} of {where}", f"not known: {failure}", Verdict.FAIL, step)
        return
    yield _agreement(table, found, where, pushed.labels.get(expected.label(table.pin), ""))


def _agreement(table: Lock, found: list[Locked], where: str, pin: str) -> Check:
    locked = "; ".join(f"{entry.version} from {entry.commit or entry.source}" for entry in found)
    wanted, seen = f"{table.package} {locked or 'not there'} ({where})", f"{table.pin} {pin or 'no label'}"
    equal = [pin in (entry.commit, entry.version.partition("+")[0]) for entry in found]
    if pin and equal and all(equal):
        return Check("lock", wanted, seen, Verdict.PASS)
    if pin and any(equal):
        step = "which of its entries a machine takes depends on the machine: look at their markers."
        return Check("lock", wanted, seen, Verdict.WARN, step)
    if table.resyncs:
        step = (
            "the lock is the authority: workers install from it at their start. Change the lock, or the pin."
        )
        return Check("lock", wanted, seen, Verdict.WARN, step)
    return Check("lock", wanted, seen, Verdict.FAIL, "make the pin and the lock agree, and build again.")


def _evidence(looked: Looked) -> dict[str, Any]:
    named = looked.named
    return {
        "from": named.reference.repository,
        "login": looked.login,
        "manifest": named.image.reference.digest if named.image else named.reference.digest,
        "config": named.image.config_digest if named.image else "",
    }
