"""What tests share: the cache of this machine, and a state folder of their own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from scripts import command

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "iris-images"


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> None:
    """Take interrupts, also where the tests run in a background job, which ignores them and hands that on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def cache() -> Path:
    """The cache in which what takes long is made once, by the tests as by the tasks."""
    return CACHE


def git(folder: Path, *words: str) -> str:
    """Run git with an identity of the test's own."""
    identity = {f"GIT_{role}_{key}": "test" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    return command.output(["git", "-C", str(folder), *words], env=identity)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git checkout with one commit of one file."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "file.txt").write_text("one\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "one")
    return folder
