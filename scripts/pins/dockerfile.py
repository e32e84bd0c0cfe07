"""A Dockerfile as text: its pins, and the syntax that not every executor builds as written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

ARG = re.compile(r"^ARG ([A-Za-z_][A-Za-z0-9_]*)=(.*)$")
INSTRUCTION = re.compile(r"^\s*([A-Za-z]+)\s+(.*)$", re.DOTALL)
HEREDOC = re.compile(r"<<-?[\"']?[A-Za-z_]")
NUMBERED_STAGE = re.compile(r"--from=[0-9]+\b")
MOUNT = re.compile(r"""--mount=["']?(\S+)""")
MOUNT_TYPE = re.compile(r"(?:^|,)type=([a-z]+)")


@dataclass(frozen=True)
class Feature:
    """A piece of syntax and the line (from 1) of the instruction that uses it."""

    name: str
    line: int


def pins(text: str) -> dict[str, str]:
    """Every `ARG NAME=value` at the start of a line, the first of a name; quotes taken off.

    The build script reads them by the same rule.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := ARG.match(line):
            found.setdefault(match[1], match[2].strip().strip('"'))
    return found


def features(text: str) -> list[Feature]:
    """The syntax that an executor may not know.

    Names: heredoc, mount-TYPE, numbered-stage, writes-kaniko.
    """
    return [Feature(name, line) for line, word, rest in instructions(text) for name in _features(word, rest)]


def instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Line (from 1), upper-case word and rest of each instruction; continued lines joined, no comments."""
    pending, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or not line.strip():
            continue  # between the lines of one instruction, too
        first = first if pending else number
        pending += line.rstrip()
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        if match := INSTRUCTION.match(pending):
            yield first, match[1].upper(), match[2]
        pending = ""


def _features(word: str, rest: str) -> Iterator[str]:
    if word == "ONBUILD":
        yield from (name for _, inner, more in instructions(rest) for name in _features(inner, more))
    if word in ("RUN", "COPY", "ADD") and HEREDOC.search(rest):
        yield "heredoc"
    if word == "RUN":
        for options in MOUNT.findall(rest):
            kind = MOUNT_TYPE.search(options)
            yield f"mount-{kind[1] if kind else 'bind'}"
    if word == "COPY" and NUMBERED_STAGE.search(rest):
        yield "numbered-stage"
    if word in ("COPY", "ADD") and rest.split()[-1].strip("[]\"'").startswith("/kaniko"):
        yield "writes-kaniko"
