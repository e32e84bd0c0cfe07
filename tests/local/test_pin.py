"""Pinning a digest of a real registry in a launcher, and checking what launchers hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts import command
from tests.conftest import git
from tests.local.images import LAUNCHER, Repository, fit
from tests.local.place import Place


@dataclass(frozen=True)
class Pinned:
    """A launcher in a checkout of its own, and the tasks that write it."""

    place: Place
    source: Path
    repository: Repository
    root: Path

    def pin(self, *words: str, ok: tuple[int, ...] = (0,)) -> command.Result:
        named = (f"--context={self.source}", f"--launcher={self.root}", *words)
        return self.place.inv("pin.tpu", *named, ok=ok, **self.env)

    def check(self, ok: tuple[int, ...] = (0,)) -> str:
        return self.place.inv("pins.check", f"--path={self.root}", ok=ok, **self.env).stdout

    def push(self, name: str) -> str:
        config = {**fit(self.source), "annotations": {"name": name}}
        return str(self.repository.image(f"fixed-{name}", **config)["digest"])

    @property
    def env(self) -> dict[str, str]:
        return {"INVOKE_REGISTRY_REPOSITORY": str(self.repository)}

    @property
    def text(self) -> str:
        return (self.root / "launch.py").read_text()


@pytest.fixture
def pinned(place: Place, source: Path, repository: Repository, tmp_path: Path) -> Pinned:
    root = tmp_path / "launcher"
    root.mkdir()
    (root / "launch.py").write_text(LAUNCHER.replace("REPOSITORY", str(repository)))
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "config", "user.name", "test")
    git(root, "config", "user.email", "test@localhost")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "one")
    return Pinned(place, source, repository, root)


def value(text: str) -> str:
    """What Python makes of the launcher's constant."""
    names: dict[str, str] = {}
    exec(text, names)  # noqa: S102
    return names["IMAGE"]


def test_a_digest_is_written_shown_repeated_and_taken_back(pinned: Pinned) -> None:
    before, digest = pinned.text, pinned.push("one")
    shown = pinned.pin(f"--digest={digest}", "--dry-run").stdout
    assert f'+    "@{digest}"' in shown
    assert pinned.text == before
    pinned.pin(f"--digest={digest}", "--reason=the stalled upload")
    assert value(pinned.text) == f"{pinned.repository}@{digest}"
    commit = git(pinned.source, "rev-parse", "HEAD")
    note = next(line for line in pinned.text.splitlines() if line.startswith("# iris-images: "))
    assert f"tpu-{commit}" in note
    assert note.endswith("the stalled upload")
    written = pinned.text
    assert "nothing to do" in pinned.pin(f"--digest={digest}").stderr
    assert pinned.text == written
    pinned.pin("--revert")
    assert pinned.text == before
    assert "No pin" in pinned.pin("--revert", ok=(2,)).stderr


def test_a_pin_that_somebody_changed_since_is_not_taken_back(pinned: Pinned) -> None:
    one, two = pinned.push("one"), pinned.push("two")
    pinned.pin(f"--digest={one}")
    (pinned.root / "launch.py").write_text(pinned.text.replace(one, two))
    assert two in pinned.pin("--revert", ok=(2,)).stderr
    assert value(pinned.text).endswith(two)


@pytest.mark.parametrize(
    ("digest", "code"),
    [
        ("sha256:" + "0" * 64, 10),
        ("tpu", 2),
        ("127.0.0.1:1/other/image@sha256:" + "0" * 64, 2),
        ("unfit", 15),
    ],
)
def test_what_may_not_be_pinned_is_not(pinned: Pinned, digest: str, code: int) -> None:
    before = pinned.text
    if digest == "unfit":
        digest = pinned.repository.image("unfit")["digest"]
    pinned.pin(f"--digest={digest}", ok=(code,))
    assert pinned.text == before


def test_a_value_that_is_there_twice_is_refused_with_its_places(pinned: Pinned) -> None:
    (pinned.root / "launch.py").write_text(before := pinned.text + '\nIMAGE = "other"\n')
    told = pinned.pin(f"--digest={pinned.push('one')}", ok=(3,)).stderr
    assert "launch.py:" in told
    assert pinned.text == before


def test_a_commit_carries_the_evidence_and_nothing_else(pinned: Pinned) -> None:
    digest = pinned.push("one")
    (pinned.root / "launch.py").write_text(pinned.text + "# mine\n")
    assert "commit or stash" in pinned.pin(f"--digest={digest}", "--commit", ok=(4,)).stderr
    git(pinned.root, "checkout", "--quiet", "launch.py")
    (pinned.root / "other.txt").write_text("mine")
    pinned.pin(f"--digest={digest}", "--commit")
    message = git(pinned.root, "log", "-1", "--format=%B")
    assert f"{pinned.repository}@{digest}" in message
    assert "pass platform" in message
    assert git(pinned.root, "show", "--name-only", "--format=", "HEAD") == "launch.py"


def test_an_image_that_no_launcher_holds_gets_its_record_printed(pinned: Pinned) -> None:
    digest = pinned.push("one")
    shown = pinned.pin(f"--digest={digest}", "--architecture=arm64", ok=(0, 15))
    assert shown.code == 15  # it is for amd64
    before = pinned.text
    table = pinned.source / "docker/images.toml"
    table.write_text(table.read_text().replace("launcher = ", "public = [] #"))
    assert digest in pinned.pin(f"--digest={digest}").stdout
    assert pinned.text == before


def test_what_launchers_docs_and_scripts_hold_is_checked(pinned: Pinned) -> None:
    old, new = pinned.push("old"), pinned.push("new")
    pinned.pin(f"--digest={new}")
    (pinned.root / "README.md").write_text(f"Last known good: {pinned.repository}@{old}\n")
    (pinned.root / "run.sh").write_text(f"IMAGE={pinned.repository}:tpu\n")
    (pinned.root / "gone.py").write_text(f'GONE = "{pinned.repository}@sha256:{"0" * 64}"\n')
    git(pinned.root, "add", "--all")
    rows = {line.split()[1]: line for line in pinned.check(ok=(15,)).splitlines()}
    by_file = {Path(name).name.split(":")[0]: line for name, line in rows.items()}
    assert by_file["README.md"].startswith("warn")
    assert "stale copy" in by_file["README.md"]
    assert by_file["run.sh"].startswith("fail")
    assert "floats" in by_file["run.sh"]
    assert "absent" in by_file["gone.py"]
    launch = [line for name, line in rows.items() if "launch.py" in name]
    assert {line.split()[0] for line in launch} == {"pass"}
