"""Mentions of images in files of every kind: what is pinned, what floats, and where it stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.errors import InputError
from scripts.release import references
from tests.conftest import git

REPOSITORY = "ghcr.io/marin-community/marinskyrl"
OTHER = "ghcr.io/open-thoughts/openthoughts-agent"
DIGEST = "sha256:" + "1" * 64
COMMIT = "3042f684" * 5


def scanned(file: Path, text: str) -> list[references.Found]:
    file.write_bytes(text.encode())
    return references.scan([file], {REPOSITORY, OTHER})


@pytest.mark.parametrize(
    ("text", "expected", "kind"),
    [
        (f"{OTHER}:tpu", f"{OTHER}:tpu", "floating"),
        (f"**{OTHER}:tpu**", f"{OTHER}:tpu", "floating"),
        (f"<b>{OTHER}:tpu</b>", f"{OTHER}:tpu", "floating"),
        (f"see {OTHER}:tpu. Or", f"{OTHER}:tpu", "floating"),
        (f"docker://{OTHER}:gpu-8x", f"{OTHER}:gpu-8x", "floating"),
        (f"'{REPOSITORY}@{DIGEST}'", f"{REPOSITORY}@{DIGEST}", "pinned"),
        (f"{REPOSITORY}:tpu@{DIGEST}", f"{REPOSITORY}:tpu@{DIGEST}", "pinned"),
        (f"{REPOSITORY}:gpu-rl-{COMMIT}", f"{REPOSITORY}:gpu-rl-{COMMIT}", "pinned"),
        (f"{REPOSITORY}:gpu-rl-{COMMIT[:8]}-arm64", f"{REPOSITORY}:gpu-rl-{COMMIT[:8]}-arm64", "pinned"),
        (f"at {REPOSITORY}: it", REPOSITORY, "repository"),
        (f"{REPOSITORY}@sha256:17a46200…", f"{REPOSITORY}@sha256:17a46200", "truncated"),
        (f"{REPOSITORY}@{DIGEST}0", f"{REPOSITORY}@{DIGEST}0", "truncated"),
        (f"{REPOSITORY}:gpu-rl-3042f684...", f"{REPOSITORY}:gpu-rl-3042f684", "computed"),
        (f"{REPOSITORY}:gpu-rl-*", f"{REPOSITORY}:gpu-rl-", "computed"),
        (f"{REPOSITORY}:gpu-rl-<commit>", f"{REPOSITORY}:gpu-rl-", "computed"),
        (f"{REPOSITORY}@sha256:<digest>", f"{REPOSITORY}@sha256:", "computed"),
        (f"{REPOSITORY}:$TAG", REPOSITORY, "computed"),
        (f'{REPOSITORY}:"${{TAG}}"', REPOSITORY, "computed"),
    ],
)
def test_what_a_mention_is(tmp_path: Path, text: str, expected: str, kind: str) -> None:
    (found,) = scanned(tmp_path / "page.md", f"# one\r\né {text}\r\n")
    column = 3 + text.index(expected)
    assert (found.text, found.kind, found.line, found.column) == (expected, kind, 2, column)
    assert (found.repository in (REPOSITORY, OTHER), found.comment, found.name) == (True, False, "")


@pytest.mark.parametrize(
    "text",
    [
        f"{REPOSITORY}-test:1",
        f"{REPOSITORY}/cache:1",
        f"{REPOSITORY}.old",
        f"mirror.io/{REPOSITORY}:1",
        f"x{REPOSITORY}:1",
    ],
)
def test_another_repository_is_none_of_ours(tmp_path: Path, text: str) -> None:
    assert scanned(tmp_path / "page.md", text) == []


@pytest.mark.parametrize(
    ("name", "line", "holder"),
    [
        ("run.sh", f'export IMAGE="{OTHER}:tpu"', "IMAGE"),
        ("run.sh", f'IMAGE="${{IMAGE:-{OTHER}:tpu}}"', "IMAGE"),
        ("job.yaml", f"  image: {OTHER}:tpu", "image"),
        ("job.json", f'"task-image": "{OTHER}:tpu"', "task-image"),
        ("a.toml", f"image = '{OTHER}:tpu'", "image"),
        ("Dockerfile.tpu", f"ARG BASE={OTHER}:tpu", "BASE"),
        ("Dockerfile", f"FROM {OTHER}:tpu AS base", ""),
        ("old.py", f'print "python 2", "{OTHER}:tpu"', ""),
    ],
)
def test_the_name_that_holds_it(tmp_path: Path, name: str, line: str, holder: str) -> None:
    (found,) = scanned(tmp_path / name, f"\n{line}\n")
    assert (found.text, found.kind, found.name, found.line) == (f"{OTHER}:tpu", "floating", holder, 2)
    (found,) = scanned(tmp_path / "x.sh", f"  # {line}\n")
    assert (found.name, found.comment) == ("", True)


def test_a_concatenation_in_python_is_one_mention(tmp_path: Path) -> None:
    text = f'''"""Use {OTHER}:tpu
or é {OTHER}."""
IMAGE: str = (
    "ghcr.io/marin-community/"  # {OTHER}:old
    # {REPOSITORY}@{DIGEST}
    r"marinskyrl"  f'@{DIGEST}'
)
def f(tag):
    other = f"{REPOSITORY}:gpu-{{tag}}"
    run("\\x67hcr.io/marin-community/marinskyrl:a", "{REPOSITORY}" + ":b")
    both = "{OTHER}" ":tpu"
'''
    found = scanned(tmp_path / "launch.py", text)
    assert [(one.line, one.column, one.name, one.kind, one.comment) for one in found] == [
        (1, 8, "", "floating", False),
        (2, 6, "", "repository", False),
        (4, 6, "IMAGE", "pinned", False),
        (4, 35, "", "floating", True),
        (5, 7, "", "pinned", True),
        (9, 15, "other", "computed", False),
        (10, 9, "", "floating", False),
        (10, 53, "", "repository", False),
        (11, 13, "both", "floating", False),
    ]
    assert found[2].text == f"{REPOSITORY}@{DIGEST}"
    assert found[2].digest == DIGEST


def test_a_folder_means_what_git_tracks_in_it(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mention = f"{OTHER}:tpu\n".encode()
    (checkout / "docs").mkdir()
    contents = {
        "docs/é a.md": mention,
        "binary.md": b"\0" + mention,
        "large.md": mention + b" " * references.SIZE_LIMIT,
        "latin.sh": b"\xe9 " + mention,
        "gone.md": mention,
    }
    for name, data in contents.items():
        (checkout / name).write_bytes(data)
    (checkout / "link.md").symlink_to("docs/é a.md")
    git(checkout, "add", "--all")
    (checkout / "gone.md").unlink()
    (checkout / "untracked.md").write_bytes(mention)
    monkeypatch.setenv("GIT_DIR", os.devnull)
    found = references.scan([checkout], {OTHER})
    assert [one.file.relative_to(checkout).as_posix() for one in found] == ["docs/é a.md", "latin.sh"]
    assert len(references.scan([checkout / "docs", checkout / "docs/é a.md"], {OTHER})) == 1


def test_a_path_that_cannot_be_scanned_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="neither a file nor a folder of a git checkout"):
            references.scan([path], {OTHER})
