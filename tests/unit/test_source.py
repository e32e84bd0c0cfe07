"""What is submitted of a checkout, with real git."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from scripts import source
from scripts.errors import SourceError
from tests.conftest import git


def members(archive: source.Archive) -> dict[str, str]:
    with tarfile.open(archive.path) as tar:
        files = [member for member in tar if member.isfile()]
        return {member.name: tar.extractfile(member).read().decode() for member in files}  # type: ignore[union-attr]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_same_commit_gives_the_same_bytes(checkout: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(checkout, "clone", "--quiet", ".", str(clone))
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    one, two = (
        source.archive(source.checkout(path), out)
        for path, out in zip((checkout, clone), folders, strict=True)
    )
    assert one.sha256 == two.sha256
    assert members(one) == {"file.txt": "one\n"}


def test_a_dirty_checkout_gives_its_work_tree_and_is_not_written(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".gitignore").write_text("ignored\n")
    (checkout / "file.txt").write_text("two\n")
    (checkout / "é x").write_text("new\n")
    (checkout / "ignored").write_text("no\n")
    before = snapshot(checkout)
    found = source.checkout(checkout)
    archive = source.archive(found, tmp_path)
    assert found.dirty
    assert found.revision == found.commit + "-dirty"
    assert members(archive) == {"file.txt": "two\n", "é x": "new\n", ".gitignore": "ignored\n"}
    assert source.read(found, "file.txt") == "two\n"
    assert snapshot(checkout) == before


def test_a_subfolder_gives_the_whole_checkout(checkout: Path) -> None:
    (checkout / "sub").mkdir()
    assert source.checkout(checkout / "sub").root == checkout


def test_git_variables_of_a_hook_do_not_lead_elsewhere(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert source.checkout(checkout).root == checkout


def test_over_the_limit_the_largest_files_are_named(checkout: Path, tmp_path: Path) -> None:
    (checkout / "noise.bin").write_bytes(os.urandom(27_000_000))
    with pytest.raises(SourceError, match=r"27,000,000\s+noise.bin"):
        source.archive(source.checkout(checkout), tmp_path)


def test_no_checkout_and_no_commit(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a git checkout"):
        source.checkout(tmp_path)
    git(tmp_path, "init", "--quiet")
    with pytest.raises(SourceError, match="with a commit"):
        source.checkout(tmp_path)


def test_what_git_would_leave_out_is_refused_by_name(checkout: Path, tmp_path: Path) -> None:
    (checkout / "kept-out").write_text("x")
    (checkout / ".gitattributes").write_text("kept-out export-ignore\n")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "attributes")
    with pytest.raises(SourceError, match="1 entries of"):
        source.archive(source.checkout(checkout), tmp_path)


def test_a_submodule_is_refused_by_name(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(checkout), "inner")
    git(checkout, "commit", "--quiet", "--message", "submodule")
    with pytest.raises(SourceError, match="first inner"):
        source.archive(source.checkout(checkout), tmp_path)
