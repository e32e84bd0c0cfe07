"""What one layer says about the paths that somebody asks for: entries, whiteouts, opaque markers.

The format is that of the OCI image specification ("Image Layer Filesystem Changeset"). Within one tar the
last entry of a name counts. A path in a tar is taken as it stands: its parents are directories there, also
where the tar has no entry for them. No content is held.
"""

from __future__ import annotations

import fnmatch
import glob
import posixpath
import tarfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from scripts.registry import blobs
from scripts.registry.content import Content, Rule, inspect

Path = tuple[str, ...]
"""The components of a path below the root."""
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
LONGEST_HEADER = 1 << 20
"""Bytes: a longer one is an attack on the memory of who reads it."""
PLAIN = (tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE)
IMPLIED_MODE = 0o755
NOTHING = Content(0, "", b"", "", {})


class Seeker(Protocol):
    """Somebody who looks for the paths that match a pattern, and wants rules judged about what is there."""

    parts: Path

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules."""

    def hides(self, path: Path) -> str:
        """Why the path in this layer does not matter; "" if it does."""


@dataclass(frozen=True)
class Entry:
    """What one layer has at a path; `kind` is also "symlink" or "hardlink", with a `target`."""

    kind: str
    mode: int = IMPLIED_MODE
    target: str = ""
    content: Content = NOTHING


@dataclass
class View:
    """What one layer says about the paths that match the beginning of a pattern."""

    pattern: Path
    entries: dict[Path, Entry] = field(default_factory=dict)
    whiteouts: set[Path] = field(default_factory=set)
    opaque: set[Path] = field(default_factory=set)

    def enter(self, folder: Path) -> bool:
        """Take note of a folder and its parents; True when its entries are of interest."""
        depth = 0
        while depth < min(len(folder), len(self.pattern)) and _match(folder[depth], self.pattern[depth]):
            depth += 1
            known = self.entries.get(folder[:depth])
            if not known or known.kind != "directory":
                self.entries[folder[:depth]] = Entry("directory")
        return depth == len(folder) < len(self.pattern)

    def hide(self, folder: Path, marker: str) -> None:
        """Take note of a whiteout or an opaque marker."""
        if marker == OPAQUE:
            self.opaque.add(folder)
        elif _match(name := marker.removeprefix(WHITEOUT), self.pattern[len(folder)]):
            self.whiteouts.add((*folder, name))

    def put(self, path: Path, entry: Entry) -> None:
        """Take note of an entry, in the order of the tar."""
        if entry.kind != "directory":
            for below in [known for known in self.entries if _below(known, path)]:
                del self.entries[below]
        self.entries[path] = entry


class Memory:
    """The names in a layer that was read: 8 bytes each, and its symbolic links.

    With it a second walk skips a layer that cannot matter. Two names of one 64-bit hash cost a fetch, or, for
    a folder above the path, are as likely as a broken machine.
    """

    def __init__(self) -> None:
        self._hashes = array("q")
        self._links: dict[str, str] = {}

    def folder(self, path: Path, shared: int) -> None:
        """Keep a folder and its parents, but for the first `shared`, which were just kept."""
        for depth in range(shared + 1, len(path) + 1):
            self._hashes.append(hash("/".join(path[:depth]) + "/"))

    def entry(self, name: str, member: tarfile.TarInfo) -> None:
        """Keep an entry of the tar."""
        self._hashes.append(hash(f"{name}/" if member.isdir() else name))
        if member.issym():
            self._links[name] = member.linkname
        elif name in self._links:
            del self._links[name]

    def view(self, pattern: Path) -> View | None:
        """What the layer says about a pattern; None when the layer must be read for it."""
        literal = pattern[: literals(pattern)]
        names = ["/".join(literal[: depth + 1]) for depth in range(len(literal))]
        marks = [_whiteout(name) for name in names] + [posixpath.join(name, OPAQUE) for name in ("", *names)]
        keys = {hash(key) for key in (*names, *(f"{name}/" for name in names), *marks)}
        hits = keys.intersection(self._hashes)
        folders, others = ([hash(name + end) in hits for name in names] for end in ("/", ""))
        unknown = [
            name for name, other in zip(names, others, strict=True) if other and name not in self._links
        ]
        if unknown or not names or folders[-1] or any(hash(mark) in hits for mark in marks):
            return None
        view = View(pattern)
        for depth, name in enumerate(names, 1):
            if folders[depth - 1] and others[depth - 1]:
                return None
            if others[depth - 1]:
                view.put(literal[:depth], Entry("symlink", target=self._links[name]))
            elif folders[depth - 1]:
                view.put(literal[:depth], Entry("directory"))
        return view


class Scan:
    """One pass over a layer, for several seekers."""

    def __init__(self, seekers: Sequence[Seeker]) -> None:
        self.memory, self.views = Memory(), [View(one.parts) for one in seekers]
        self._all = list(zip(seekers, self.views, strict=True))
        self._folder: str | None = None
        self._path: Path = ()
        # Those for which the entries of the folder at hand are of interest.
        self._near: list[tuple[Seeker, View]] = []

    def run(self, stream: BinaryIO) -> str:
        """Read a tar to its end. Returns what is wrong with it, which is no error yet.

        What the registry did wrong is the better reason, and that is known when all bytes came.
        """
        try:
            self._members(stream)
        except (*blobs.BROKEN, tarfile.TarError, ValueError) as error:
            return str(error)
        return ""

    def _members(self, stream: BinaryIO) -> None:
        forward = _Forward(stream)
        # Not the mode "r|": with large blocks it copies a block for each entry.
        tar = tarfile.TarFile(fileobj=forward, encoding="utf-8", tarinfo=_Header)  # type: ignore[arg-type]
        while member := tar.next():
            # tarfile keeps a list of all members.
            tar.members = []  # type: ignore[attr-defined]
            name = posixpath.normpath("/" + member.name.lstrip("/"))[1:]
            if name:
                self._entry(tar, name, member)
        # tarfile takes a header that it cannot read for the end.
        if forward.last.strip(b"\0"):
            raise tarfile.ReadError(f"no header of a tar after {forward.tell()} bytes")

    def _entry(self, tar: tarfile.TarFile, name: str, member: tarfile.TarInfo) -> None:
        folder, _, base = name.rpartition("/")
        if folder != self._folder:
            self._enter(folder)
        self.memory.entry(name, member)
        if not self._near:
            return
        if base.startswith(WHITEOUT):
            for _, view in self._near:
                view.hide(self._path, base)
        else:
            self._put(tar, (*self._path, base), member)

    def _enter(self, folder: str) -> None:
        path = tuple(folder.split("/")) if folder else ()
        shared = len(posixpath.commonprefix((self._path, path)))
        self.memory.folder(path, shared)
        self._folder, self._path = folder, path
        self._near = [(one, view) for one, view in self._all if view.enter(path)]

    def _put(self, tar: tarfile.TarFile, path: Path, member: tarfile.TarInfo) -> None:
        depth, kind, content = len(path), _kind(member), NOTHING
        takers = [(one, view) for one, view in self._near if _match(path[-1], view.pattern[depth - 1])]
        readers = [one for one, view in takers if len(view.pattern) == depth and not one.hides(path)]
        if kind == "file" and readers and (stream := tar.extractfile(member)):
            content = inspect(stream, {rule for one in readers for rule in one.rules})
        target = member.linkname if kind in ("symlink", "hardlink") else ""
        for _, view in takers:
            view.put(path, Entry(kind, member.mode & 0o7777, target, content))


class _Header(tarfile.TarInfo):
    """An entry, made of the few fields that count here: half of a pass went into reading all of them."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        """Read a plain header (POSIX ustar, "ustar Interchange Format"); tarfile reads what is not plain."""
        if len(buf) != tarfile.BLOCKSIZE or buf[156:157] not in PLAIN or buf[345]:
            return super().frombuf(buf, encoding, errors)
        try:
            mode, size, checksum = int(buf[100:107], 8), int(buf[124:135], 8), int(buf[148:154], 8)
        except ValueError:
            return super().frombuf(buf, encoding, errors)
        # The checksum counts its own field as eight spaces.
        if checksum != sum(buf) - sum(buf[148:156]) + 8 * ord(" "):
            return super().frombuf(buf, encoding, errors)
        name, target = (buf[at : at + 100].split(b"\0", 1)[0].decode(encoding, errors) for at in (0, 157))
        header = cls(name)
        header.mode, header.size, header.type, header.linkname = mode, size, bytes(buf[156:157]), target
        return header


class _Forward:
    """A stream that cannot go back, with what tarfile asks of a file."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._at = stream, 0
        self.last = b""

    def read(self, size: int) -> bytes:
        """Read so many bytes, fewer only at the end."""
        # Content comes in chunks; what tarfile wants whole is a name or an extended header.
        if size > LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        self.last = self._stream.read(size)
        self._at += len(self.last)
        return self.last

    def tell(self) -> int:
        """Bytes so far."""
        return self._at

    def seek(self, position: int) -> int:
        """Go forward."""
        while self._at < position and (skipped := self._stream.read(min(position - self._at, blobs.CHUNK))):
            self._at += len(skipped)
        return self._at


def _kind(member: tarfile.TarInfo) -> str:
    kinds = {
        "file": member.isreg(),
        "directory": member.isdir(),
        "symlink": member.issym(),
        "hardlink": member.islnk(),
    }
    return next((kind for kind, is_it in kinds.items() if is_it), "other")


def _match(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def literally(path: Path) -> Path:
    """The path as a pattern that matches nothing else."""
    return tuple(glob.escape(part) for part in path)


def literals(pattern: Path) -> int:
    """How many components come before the first with a wildcard."""
    return next((at for at, part in enumerate(pattern) if glob.has_magic(part)), len(pattern))


def _below(path: Path, folder: Path) -> bool:
    return len(path) > len(folder) and path[: len(folder)] == folder


def _whiteout(name: str) -> str:
    folder, base = posixpath.split(name)
    return posixpath.join(folder, WHITEOUT + base)
