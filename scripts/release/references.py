"""Every mention of an image in files: in Python by its strings, in everything else line by line."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import libcst as cst

from scripts import command
from scripts.errors import CommandFailed, ConfigurationError, InputError
from scripts.registry.reference import DIGEST
from scripts.release.syntax import Source, parse, pieces_of, tokens_of
from scripts.source import unset

SIZE_LIMIT = 1_000_000
"""Bytes; a larger file is data."""
COMMIT_TAG = re.compile(r"(?:^|-)[0-9a-f]{7,40}(?:-|$)")
NAMED = re.compile(r"""([A-Za-z_][\w.-]*)["']?\s*[:=]\s*["']?(?:\$\{\w+:?[-=])?$""")
"""What stands before a value: `NAME=`, `name: "`, `NAME=${NAME:-`."""
PROSE = (".md", ".rst", ".txt")


@dataclass(frozen=True)
class Found:
    """A mention of an image.

    Attributes:
        file, line, column: where it begins; line and column from 1, column in characters.
        text: as it stands there; the strings of a Python concatenation joined.
        repository, tag, digest: its parts; tag and digest may be empty, a digest may be cut short.
        kind: "pinned": by digest, or by a tag that names a commit. "floating": by another tag.
            "repository": by name alone, which pulls `latest` where something pulls it. "truncated": its
            digest is cut short. "computed": goes on with a placeholder, as in `:$TAG`.
        name: the constant, variable or key that holds it; empty where none does.
        comment: whether it stands in a comment.
    """

    file: Path
    line: int
    column: int
    text: str
    repository: str
    tag: str
    digest: str
    kind: str
    name: str
    comment: bool


def scan(paths: Sequence[Path], repositories: Collection[str]) -> list[Found]:
    """Every mention of the repositories, in the order of the paths, then of the text.

    Args:
        paths: files, and folders for the files that git tracks in them. Binary files, files over 1 MB
            and links are passed over in a folder.
        repositories: with their host, as in ghcr.io/team/image.

    Raises:
        InputError: a path that does not exist, or a folder that is no git checkout.
    """
    pattern = _pattern(repositories)
    parts = {part.encode() for name in repositories for part in name.split("/")}
    files = dict.fromkeys(file for path in paths for file in _files(path))
    return [found for file in files for found in _scan_file(file, pattern, parts)]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    try:
        listing = command.output(["git", "-C", path, "ls-files", "-z"], env=unset())
    except CommandFailed as failed:
        raise InputError(
            f"{path} is neither a file nor a folder of a git checkout.", "give files, or a checkout."
        ) from failed
    files = [path / name for name in listing.split("\0") if name]
    return [file for file in files if file.is_file() and not file.is_symlink()]


def _scan_file(file: Path, pattern: re.Pattern[str], parts: Collection[bytes]) -> list[Found]:
    data = file.read_bytes()
    if len(data) > SIZE_LIMIT or b"\0" in data or not any(part in data for part in parts):
        return []
    if file.suffix == ".py":
        try:
            found = _in_python(parse(data, file), pattern)
            return sorted(found, key=lambda one: (one.line, one.column))
        except ConfigurationError:
            pass  # another Python's syntax: its lines can be read all the same
    return list(_in_lines(data.decode("utf-8", "replace"), file, pattern))


def _pattern(repositories: Collection[str]) -> re.Pattern[str]:
    names = "|".join(re.escape(name) for name in repositories)
    return re.compile(
        # Not the end of another host or path; a scheme may stand before it, and the :- of a shell's default.
        r"(?:(?<=:-)|(?<![\w.-]))(?<![\w.-]/)"
        rf"(?P<repository>{names})(?!/?[\w-])(?!\.\w)"
        r"(?::(?P<tag>\w(?:[\w.-]*[\w-])?))?(?:@(?P<digest>sha256:[0-9a-fA-F]*))?"
        # How it goes on where it is made at run time, or is cut short in prose.
        r"(?P<rest>[:@]?[\"']?\$[\w{(]|[:@]?\{|[:@]?(?<=[-:@])(?:<\w|\*)|(?<=[-:@\w])(?:…|\.\.\.))?",
        re.ASCII,
    )


def _found(match: re.Match[str], file: Path, at: tuple[int, int], name: str, comment: bool) -> Found:
    repository, tag, digest = match["repository"], match["tag"] or "", match["digest"] or ""
    text = repository + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")
    kind = _kind(tag, digest, match["rest"] or "")
    return Found(file, *at, text, repository, tag, digest, kind, name, comment)


def _kind(tag: str, digest: str, rest: str) -> str:
    if DIGEST.fullmatch(digest):
        return "pinned"
    if digest.removeprefix("sha256:"):
        return "truncated"
    if rest:
        return "computed"
    if COMMIT_TAG.search(tag):
        return "pinned"
    return "floating" if tag else "repository"


def _in_lines(text: str, file: Path, pattern: re.Pattern[str]) -> Iterator[Found]:
    prose = file.suffix in PROSE
    for number, line in enumerate(text.split("\n"), 1):
        comment = not prose and line.lstrip().startswith("#")
        for match in pattern.finditer(line):
            named = None if prose or comment else NAMED.search(line[: match.start()])
            yield _found(match, file, (number, match.start() + 1), named[1] if named else "", comment)


def _in_python(source: Source, pattern: re.Pattern[str]) -> Iterator[Found]:
    """The mentions in strings, of which a concatenation is one, and in comments."""
    texts = _Texts()
    source.module.visit(texts)
    for node, name in texts.seen:
        comment = isinstance(node, cst.Comment)
        pieces = [(node, node.value)] if isinstance(node, cst.Comment) else _meant(node)
        starts = [0, *accumulate(len(text) for _, text in pieces)]
        for match in pattern.finditer("".join(text for _, text in pieces)):
            index = bisect_right(starts, match.start()) - 1
            inside, shown = match.start() - starts[index], match[0][: starts[index + 1] - match.start()]
            at = _offset(source, pieces[index][0], inside, shown)
            yield _found(match, source.file, source.position(at), name, comment)


def _meant(node: cst.CSTNode) -> list[tuple[cst.CSTNode, str]]:
    """The tokens of a string and what each means; an expression in one is shown as {}."""
    return [
        (token, "".join(piece if isinstance(piece, str) else "{}" for piece in pieces_of(token)))
        for token in tokens_of(node)
    ]


def _offset(source: Source, node: cst.CSTNode, inside: int, shown: str) -> int:
    """The byte at which a token shows a text; where it is escaped there, the token's first."""
    code = source.code(node)
    return source.span(node)[0] + len(code[: max(code.find(shown, inside), 0)].encode())


class _Texts(cst.CSTVisitor):
    """Collects every comment and every whole string, with the name that its value is assigned to."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[cst.CSTNode, str]] = []
        self._names = [""]
        self._joins = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Note what a node is, on the way down."""
        if isinstance(node, cst.Assign | cst.AnnAssign):
            target = node.target if isinstance(node, cst.AnnAssign) else node.targets[0].target
            self._names.append(target.value if isinstance(target, cst.Name) else "")
        elif isinstance(node, cst.Comment):
            self.seen.append((node, ""))
        elif tokens_of(node) and not self._joins:
            self.seen.append((node, self._names[-1]))
        self._joins += isinstance(node, cst.ConcatenatedString)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        """Forget it, on the way up."""
        if isinstance(original_node, cst.Assign | cst.AnnAssign):
            self._names.pop()
        self._joins -= isinstance(original_node, cst.ConcatenatedString)
