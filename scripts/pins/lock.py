"""A uv.lock of another repository: what it says of one package."""

from __future__ import annotations

import re
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from scripts import command
from scripts.cache import entry, key
from scripts.errors import CommandFailed, SourceError
from scripts.source import COMMIT, unset

FETCH_SECONDS = 120
URL = re.compile(r"(?:https?|git|ssh)://[^\s-]\S*|[\w.-]+@[\w.-]+:\S+")
"""What is handed to git: it takes other words for options, and some for programs to start."""


@dataclass(frozen=True)
class Locked:
    """One entry of a lock: the version, and the commit where the source is git; else the source's kind."""

    version: str
    commit: str
    source: str


def entries(text: str, package: str) -> list[Locked]:
    """What a lock says of a package: one entry for each marker that divides it.

    Raises:
        SourceError: the text is no lock.
    """
    try:
        found = [item for item in tomllib.loads(text)["package"] if item["name"] == package]
        return [_locked(item) for item in found]
    except (tomllib.TOMLDecodeError, KeyError, TypeError, StopIteration) as wrong:
        raise SourceError(f"The lock cannot be read: {wrong}.", "give a uv.lock.") from wrong


def fetched(cache: Path, repository: str, commit: str, path: str) -> str:
    """A file of one commit of a repository, fetched once: a commit never changes.

    Raises:
        SourceError: the repository cannot be asked, or has no such commit or file.
    """

    if not COMMIT.fullmatch(commit) or not URL.fullmatch(repository):
        raise SourceError(
            f"{repository or 'nothing'} at {commit or 'no commit'} is no address of a lock.",
            "the Dockerfile's pins say it, or --lock.",
        )

    def make(folder: Path) -> None:
        (folder / "file").write_text(_fetch(repository, commit, path))

    return (entry(cache, "locks", key(repository, commit, path), make) / "file").read_text()


def _fetch(repository: str, commit: str, path: str) -> str:
    try:
        with tempfile.TemporaryDirectory(prefix="iris-images-") as folder:
            git = ("git", "-C", folder)
            env = {**unset(), "GIT_TERMINAL_PROMPT": "0"}
            command.run([*git, "init", "--quiet", "--bare"], timeout=FETCH_SECONDS, env=env)
            command.run([*git, "remote", "add", "origin", repository], timeout=FETCH_SECONDS, env=env)
            # Of the blobs only the one that is shown, where the server knows how.
            words = ("fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", commit)
            command.run([*git, *words], timeout=FETCH_SECONDS, env=env)
            return command.run([*git, "show", f"{commit}:{path}"], timeout=FETCH_SECONDS, env=env).stdout
    except CommandFailed as failed:
        raise SourceError(
            f"{path} of {repository} at {commit} cannot be fetched.",
            "check the repository and the commit, or give the lock with --lock.",
            failed.detail,
        ) from failed


def _locked(item: dict[str, object]) -> Locked:
    source = item.get("source")
    kind, value = next(iter(source.items())) if isinstance(source, dict) else ("", "")
    commit = str(value).partition("#")[2] if kind == "git" else ""
    return Locked(str(item.get("version", "")), commit, kind)
