"""The git checkout that an image is built from: its commit, whether it is clean, and what is submitted of it.

Iris bundles the current directory by rules that differ between its versions, so what is submitted is
one archive of the commit, made by git, alone in a folder of its own. The checkout is read, never written.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts import command
from scripts.errors import CommandFailed, SourceError

COMMIT = re.compile(r"[0-9a-f]{40}")
ARCHIVE = "context.tar.gz"
BUNDLE_LIMIT = 25 * 1024 * 1024
"""Bytes, compressed: the cap that Iris' client and controller put on a bundle."""
ZIP_OVERHEAD = 64 * 1024


@dataclass(frozen=True)
class Checkout:
    """A git work tree: its root, HEAD's full commit, and whether files differ from it."""

    root: Path
    commit: str
    dirty: bool

    @property
    def revision(self) -> str:
        """What tags, labels and records call it: the commit, and `-dirty` where that is not all of it."""
        return self.commit + ("-dirty" if self.dirty else "")


@dataclass(frozen=True)
class Archive:
    """What is submitted: the archive's path, its sha256 (hexadecimal) and its size in bytes."""

    path: Path
    sha256: str
    size: int


def checkout(path: Path) -> Checkout:
    """Read the checkout that holds a path.

    Raises:
        SourceError: not a git work tree, or one without a commit.
    """
    try:
        root = Path(_git(path, "rev-parse", "--show-toplevel"))
        commit = _git(root, "rev-parse", "--verify", "HEAD^{commit}")
    except (CommandFailed, OSError) as failed:
        raise SourceError(
            f"{path} is not a git checkout with a commit.",
            "an image is built from a commit: clone, or commit.",
        ) from failed
    return Checkout(root, commit, bool(_git(root, "status", "--porcelain", "--untracked-files=normal")))


def read(source: Checkout, path: str) -> str:
    """The text of a file of the checkout as it will be submitted.

    Raises:
        SourceError: there is no such file.
    """
    try:
        return (
            (source.root / path).read_text()
            if source.dirty
            else _git(source.root, "show", f"HEAD:{path}") + "\n"
        )
    except (CommandFailed, OSError) as failed:
        raise SourceError(f"{path} is not in {source.revision} of {source.root}.") from failed


def resolve(path: Path, name: str) -> str:
    """The full commit that a name gives in the checkout of a path.

    Raises:
        SourceError: it names no commit there.
    """
    try:
        return _git(path, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except (CommandFailed, OSError) as failed:
        raise SourceError(f"{name!r} names no commit of {path}.", "fetch it, or correct it.") from failed


def contains(path: Path, commit: str, older: str) -> bool:
    """Whether a commit of the checkout of a path is, or comes after, another one.

    Raises:
        SourceError: the checkout does not have them.
    """
    missing = f"{path} does not have {commit or 'a commit without a name'} and {older}."
    try:
        base = _git(path, "merge-base", resolve(path, commit), older)
    except CommandFailed as failed:
        raise SourceError(missing) from failed
    return base == older


def subjects(path: Path, older: str, newer: str) -> list[str]:
    """Abbreviated commit and subject of what a newer commit has and an older one has not, the newest first.

    Raises:
        SourceError: the checkout does not have them.
    """
    words = (f"{resolve(path, older)}..{resolve(path, newer)}",)
    return _git(path, "log", "--format=%h %s", *words).splitlines()


def at(path: Path, commit: str, file: str) -> str:
    """The text of a file of the checkout at a commit (40 hexadecimal digits).

    Raises:
        SourceError: the checkout has no such commit, or the commit no such file.
    """
    if not COMMIT.fullmatch(commit):  # git would take an option for one
        raise SourceError(f"{commit or 'nothing'} is not a commit.", "40 hexadecimal digits are one.")
    try:
        return _git(path, "show", f"{commit}:{file}") + "\n"
    except (CommandFailed, OSError) as failed:
        raise SourceError(f"{file} is not in {resolve(path, commit)} of {path}.") from failed


def archive(source: Checkout, folder: Path) -> Archive:
    """Write the archive of a checkout into a folder: of HEAD, or, where that is dirty, of the work tree.

    The same content gives the same bytes. Ignored files stay out.

    Raises:
        SourceError: it is over Iris' limit (names the ten largest files), or git would leave something out.
    """
    target = folder / ARCHIVE
    with tempfile.TemporaryDirectory() as scratch:
        extra = _scratch_objects(source.root, Path(scratch))
        tree = _commit_work_tree(source, extra) if source.dirty else source.commit
        tar = Path(scratch) / "context.tar"
        _git(
            source.root, "-c", "tar.umask=0022", "archive", "--format=tar", f"--output={tar}", tree, env=extra
        )
        _refuse_gaps(source, tar, _git(source.root, "ls-tree", "-r", "-z", "--name-only", tree, env=extra))
        with (
            tar.open("rb") as plain,
            target.open("wb") as raw,
            gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
        ):
            shutil.copyfileobj(plain, packed, 1 << 20)
        if target.stat().st_size > BUNDLE_LIMIT - ZIP_OVERHEAD:
            raise _too_large(target.stat().st_size, _git(source.root, "ls-tree", "-r", "-l", tree, env=extra))
    with target.open("rb") as file:
        return Archive(target, hashlib.file_digest(file, "sha256").hexdigest(), target.stat().st_size)


def unset() -> dict[str, str | None]:
    """Changes to the environment of git: a GIT_DIR of the caller (a hook) must not lead elsewhere."""
    return {name: None for name in os.environ if name.startswith("GIT_")}


def _git(where: Path, *words: str, env: dict[str, str] | None = None) -> str:
    words = ("--no-optional-locks", "-C", str(where), *words)
    return command.output(["git", *words], timeout=300, env={**unset(), **(env or {})})


def _scratch_objects(root: Path, scratch: Path) -> dict[str, str]:
    """An index and an object store beside those of the checkout, which git then only reads."""
    (scratch / "objects").mkdir()
    return {
        "GIT_INDEX_FILE": str(scratch / "index"),
        "GIT_OBJECT_DIRECTORY": str(scratch / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": _git(
            root, "rev-parse", "--path-format=absolute", "--git-path", "objects"
        ),
    }


def _commit_work_tree(source: Checkout, extra: dict[str, str]) -> str:
    _git(source.root, "read-tree", "HEAD", env=extra)
    _git(source.root, "add", "--all", env=extra)
    tree = _git(source.root, "write-tree", env=extra)
    when = _git(source.root, "show", "-s", "--format=%ct +0000", "HEAD")
    dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    names = {
        f"GIT_{role}_{key}": "iris-images" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
    }
    return _git(
        source.root, "commit-tree", tree, "-p", "HEAD", "-m", "work tree", env={**extra, **dates, **names}
    )


def _refuse_gaps(source: Checkout, tar: Path, listing: str) -> None:
    """git leaves submodules and files with the attribute export-ignore out of an archive, without a word."""
    with tarfile.open(tar) as opened:
        held = {member.name for member in opened if not member.isdir()}
    missing = [name for name in listing.split("\0") if name and name not in held]
    if missing:
        raise SourceError(
            f"git leaves {len(missing)} entries of {source.root} out of the archive, first {missing[0]}.",
            "an image is built from files of the commit: no submodules, no export-ignore.",
        )


def _too_large(size: int, listing: str) -> SourceError:
    sizes = [
        (int(line.split()[3]), line.split("\t", 1)[1]) for line in listing.splitlines() if " blob " in line
    ]
    largest = sorted(sizes, reverse=True)[:10]
    return SourceError(
        f"The context is {size:,} bytes compressed; Iris takes {BUNDLE_LIMIT:,}.",
        "ignore or remove the largest files (bytes, uncompressed, above).",
        "\n".join(f"  {bytes_:>12,}  {name}" for bytes_, name in largest),
    )
