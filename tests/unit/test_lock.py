"""What a uv.lock says of one package."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.errors import SourceError
from scripts.pins import lock
from scripts.pins.lock import Locked

COMMIT = "22d75039694db5c223797d5eec75b5c1ae975ac6"
TEXT = f"""
version = 1
revision = 3
[[package]]
name = "harbor"
version = "0.8.1"
source = {{ git = "https://github.com/marin-community/harbor.git?rev=main#{COMMIT}" }}
[[package]]
name = "torch"
version = "2.9.1"
source = {{ registry = "https://index.example/simple" }}
resolution-markers = ["sys_platform == 'darwin'"]
[[package]]
name = "torch"
version = "2.10.0+cpu"
source = {{ registry = "https://other.example/simple" }}
[[package]]
name = "agent"
source = {{ virtual = "." }}
"""


def test_the_commit_of_a_git_source_and_every_entry_of_a_package_are_told() -> None:
    assert lock.entries(TEXT, "harbor") == [Locked("0.8.1", COMMIT, "git")]
    assert [one.version for one in lock.entries(TEXT, "torch")] == ["2.9.1", "2.10.0+cpu"]
    assert lock.entries(TEXT, "agent") == [Locked("", "", "virtual")]
    assert lock.entries(TEXT, "vllm") == []


@pytest.mark.parametrize("text", ["{", "version = 1", "package = 3", "[[package]]\nversion = '1'"])
def test_what_is_no_lock_is_said(text: str) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        lock.entries(text, "harbor")


@pytest.mark.parametrize(
    ("repository", "commit"),
    [
        ("https://example.test/x.git", "--upload-pack=/bin/true"),
        ("https://example.test/x.git", "main"),
        ("ext::sh -c true", COMMIT),
        ("--upload-pack=/bin/true", COMMIT),
        ("/some/folder", COMMIT),
    ],
)
def test_what_is_no_address_is_not_handed_to_git(tmp_path: Path, repository: str, commit: str) -> None:
    with pytest.raises(SourceError, match="no address of a lock"):
        lock.fetched(tmp_path, repository, commit, "uv.lock")
    assert list(tmp_path.iterdir()) == []
