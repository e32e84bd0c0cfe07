"""What lies in the layers of an image: files and packages that its table, or a person, asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scripts import expected
from scripts.catalogue import Inside
from scripts.progress import size
from scripts.registry import content, files
from scripts.registry.checks import Check, Verdict
from scripts.registry.content import Rule
from scripts.registry.files import Found, Wanted
from scripts.registry.image import Env, Pushed

NEXT = "build it again from a commit where this is right; --file and --grep show more of the image."
Seen = tuple[bool, str]
"""Whether it is as it must be, and what was seen, in words."""


def check(pushed: Pushed, wanted: Sequence[Inside], env: Env) -> Iterator[Check]:
    """A row for each question, and one that says what reading the layers took.

    Raises:
        Damaged, CommandTimeout, RegistryError: a layer cannot be read to its end: that is no answer.
    """
    asked = [_questions(one) for one in wanted]
    reading = files.read(pushed.reference, pushed.layers, [one for group in asked for one in group], env)
    answers = iter(reading.found)
    for one, group in zip(wanted, asked, strict=True):
        found = [next(answers) for _ in group]
        fits, seen = _package(one, pushed, found) if one.package else _file(one, pushed, found[0])
        verdict, step = (Verdict.PASS, "") if fits else (Verdict.FAIL, NEXT)
        yield Check(f"inside: {one.package or one.file}", _expected(one, pushed), seen, verdict, step)
    fetched = f"{reading.layers} of {len(pushed.layers)}, {size(reading.fetched)}"
    yield Check("layers read", "no more than the answers need", fetched, Verdict.PASS)


def _questions(one: Inside) -> list[Wanted]:
    if one.package:
        folder = f"{one.file}/{one.package}-[0-9]*.dist-info"
        return [Wanted(f"{folder}/METADATA"), Wanted(f"{folder}/direct_url.json")]
    rule = Rule(one.pattern, one.followed_by, one.within, one.must) if one.pattern else None
    return [Wanted(one.file, (rule,) if rule else ())]


def _expected(one: Inside, pushed: Pushed) -> str:
    if one.package:
        return f"{one.commit or one.version} {_pin(pushed, one.commit or one.version)}"
    if one.machine:
        return f"a program for {pushed.architecture}"
    if not one.pattern:
        return "a file"
    must = "must" if one.must else "must not"
    if one.followed_by:
        return f"“{one.followed_by}” {must} come within {one.within} lines after “{one.pattern}”"
    return f"“{one.pattern}” {must} be there"


def _pin(pushed: Pushed, name: str) -> str:
    return pushed.labels.get(expected.label(name), "")


def _package(one: Inside, pushed: Pushed, found: Sequence[Found]) -> Seen:
    metadata, direct_url = found
    if metadata.kind != "file":
        return False, f"not installed: {metadata.why}"
    version, commit = content.version(metadata.text), content.commit(direct_url.text)
    seen = f"{version} from {f'commit {commit}' if commit else 'no commit'}, {_place(metadata, pushed)}"
    if one.version:
        wanted = _pin(pushed, one.version)
        return bool(wanted) and version.partition("+")[0] == wanted, seen
    return _is_of(version, commit, _pin(pushed, one.commit)), seen


def _is_of(version: str, commit: str, wanted: str) -> bool:
    """Installed from that commit, or, as a wheel, of a version that names it: 0.1.dev1+g8672c71e3."""
    short = content.version_commit(version)
    return bool(wanted) and (commit == wanted or (not commit and bool(short) and wanted.startswith(short)))


def _file(one: Inside, pushed: Pushed, found: Found) -> Seen:
    if found.kind != "file":
        return False, f"{found.kind}{f': {found.why}' if found.why else ''}"
    place = _place(found, pushed)
    if one.machine:
        machine = content.elf_machine(found.head)
        return machine == pushed.architecture, f"{machine or 'no program'}, {place}"
    if not one.pattern:
        return True, f"{found.size:,} bytes, sha256:{found.sha256}, {place}"
    lines = ", ".join(map(str, found.matches[0]))
    return found.met[0], f"{f'in line {lines}' if lines else 'in no line'}, {place}"


def _place(found: Found, pushed: Pushed) -> str:
    return f"{found.path} of layer {found.layer + 1} of {len(pushed.layers)}"
