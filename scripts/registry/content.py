"""What is in a file, learned while it streams by: size, digest, first bytes, rules about its lines."""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from typing import IO

from scripts.errors import ConfigurationError

CHUNK = 1 << 18
HEAD = 64
TEXT = 1 << 20
LINE = 1 << 20
"""A longer line is looked at in pieces of so many bytes, each a line of its own."""
MATCHES = 20
SHORT_COMMIT = re.compile(r"[+.]g([0-9a-f]{7,40})(?![0-9a-z])")
MACHINES = {3: "386", 21: "ppc64le", 22: "s390x", 40: "arm", 62: "amd64", 183: "arm64", 243: "riscv64"}
"""From e_machine of an ELF header (System V ABI, "ELF Header") to the names that an image's config uses."""


@dataclass(frozen=True)
class Rule:
    """What must, or must not, stand in a file.

    Attributes:
        pattern: a regular expression, searched in each line.
        followed_by: every line that matches `pattern` must (must not) be followed by one that matches this;
            empty: some line must (no line may) match `pattern`.
        within: so many lines further down at most; the line itself does not count.
        must: a rule that must is not met by a file where `pattern` does not occur.

    Raises:
        ConfigurationError: not a regular expression, or a distance that makes no sense.
    """

    pattern: str
    followed_by: str = ""
    within: int = 0
    must: bool = True

    def __post_init__(self) -> None:
        for pattern in (self.pattern, self.followed_by):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigurationError(f"{pattern!r} is not a regular expression: {error}.") from error
        if bool(self.followed_by) != (self.within > 0):
            raise ConfigurationError(
                f"The rule about {self.pattern!r} needs both followed_by and within, or neither."
            )


@dataclass(frozen=True)
class Judged:
    """What came of a rule: whether it is met, and the numbers of the first lines that match `pattern`."""

    met: bool
    matches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Content:
    """What a file holds: bytes, their sha256, the first 64, the text (up to 1 MiB of UTF-8), the rules."""

    size: int
    sha256: str
    head: bytes
    text: str
    judged: dict[Rule, Judged]


def inspect(stream: IO[bytes], rules: Collection[Rule]) -> Content:
    """Read a stream to its end; what is kept of it does not grow with it."""
    tally, judges = _Tally(), [_Judge(rule) for rule in rules]
    chunks = tally.chunks(stream)
    for number, line in enumerate(_lines(chunks) if judges else (), 1):
        for judge in judges:
            judge.hear(number, line)
    for _ in chunks:
        pass
    return Content(
        tally.size,
        tally.sha256.hexdigest(),
        bytes(tally.start[:HEAD]),
        tally.text(),
        {judge.rule: judge.verdict() for judge in judges},
    )


def elf_machine(head: bytes) -> str:
    """The architecture of a program by its first 64 bytes, as an image's config names it; "" if not ELF."""
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return ""
    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return MACHINES.get(number, f"e_machine {number}")


def version(metadata: str) -> str:
    """The version that a METADATA file of a dist-info folder states (core metadata specification)."""
    return str(HeaderParser().parsestr(metadata).get("Version", ""))


def commit(direct_url: str) -> str:
    """The source commit by a direct_url.json (direct URL specification); "" where it states none."""
    try:
        found = json.loads(direct_url)["vcs_info"]["commit_id"]
    except (json.JSONDecodeError, KeyError, TypeError):
        return ""
    return str(found)


def version_commit(version: str) -> str:
    """The abbreviated commit in a version such as 0.1.dev1+g8672c71e3.cu129; "" where there is none."""
    found = SHORT_COMMIT.search(version)
    return found[1] if found else ""


class _Tally:
    """Counts and hashes what passes, and keeps its beginning."""

    def __init__(self) -> None:
        self.size, self.sha256, self.start = 0, hashlib.sha256(), bytearray()

    def chunks(self, stream: IO[bytes]) -> Iterator[bytes]:
        while chunk := stream.read(CHUNK):
            self.size += len(chunk)
            self.sha256.update(chunk)
            if len(self.start) <= TEXT:
                self.start += chunk
            yield chunk

    def text(self) -> str:
        try:
            return self.start.decode() if self.size <= TEXT else ""
        except UnicodeDecodeError:
            return ""


class _Judge:
    """Hears the lines of a file one by one and says in the end whether a rule is met."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._pattern, self._follower = re.compile(rule.pattern), re.compile(rule.followed_by)
        self._matches: list[int] = []
        self._waiting: deque[int] = deque()
        self._broken = False

    def hear(self, number: int, line: str) -> None:
        while self._waiting and number - self._waiting[0] > self.rule.within:
            self._waiting.popleft()
            self._broken |= self.rule.must
        if self._waiting and self._follower.search(line):
            self._waiting.clear()
            self._broken |= not self.rule.must
        if self._pattern.search(line):
            if len(self._matches) < MATCHES:
                self._matches.append(number)
            if self.rule.followed_by:
                self._waiting.append(number)

    def verdict(self) -> Judged:
        occurs, rule = bool(self._matches), self.rule
        if rule.must:
            met = occurs and not self._broken and not self._waiting
        else:
            met = not self._broken if rule.followed_by else not occurs
        return Judged(met, tuple(self._matches))


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        while len(rest) >= LINE:
            whole.append(rest[:LINE])
            rest = rest[LINE:]
        yield from (line.decode("utf-8", "replace").removesuffix("\r") for line in whole)
    if rest:
        yield rest.decode("utf-8", "replace")
