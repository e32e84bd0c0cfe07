"""The small git repositories and the small wheel set of a local build: real git, uv and gcc."""

import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.local import roots, services, sources
from scripts.local.sources import Sources
from scripts.pins import dockerfile

REPOSITORY = Path(__file__).parents[2]
FETCH = REPOSITORY / "docker/steps/fetch-commit.sh"


@pytest.fixture
def served(cache: Path, tmp_path: Path) -> Iterator[Sources]:
    running = sources.up(cache, tmp_path / "state")
    yield sources.make(cache, running.port)
    services.down(tmp_path / "state", "git")


def git(folder: Path, *words: str) -> str:
    argv = ["git", "-C", str(folder), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def fetch(served: Sources, name: str, folder: Path) -> Path:
    """As a RUN of the Dockerfile fetches it."""
    subprocess.run([FETCH, served.url(name), served.commits[name], folder], check=True)
    return folder


def test_every_repository_is_served_at_its_exact_commit(served: Sources, tmp_path: Path) -> None:
    for name, commit in served.commits.items():
        assert git(fetch(served, name, tmp_path / name), "rev-parse", "HEAD") == commit


def test_nothing_else_of_the_cache_is_served(tmp_path: Path) -> None:
    cache, state = tmp_path / "cache", tmp_path / "state"
    git(tmp_path, "init", "--quiet", "--bare", str(cache / "private.git"))
    address = f"git://127.0.0.1:{sources.up(cache, state).port}/private.git"
    refused = subprocess.run(["git", "ls-remote", address], capture_output=True, text=True)
    (cache / "private.git/git-daemon-export-ok").touch()
    allowed = subprocess.run(["git", "ls-remote", address], capture_output=True, text=True)
    services.down(state, "git")
    assert (refused.returncode, allowed.returncode) == (128, 0)


def test_the_locks_belong_to_their_projects(served: Sources, tmp_path: Path) -> None:
    for name in sources.LOCKED:
        folder = fetch(served, name, tmp_path / name)
        argv = [sources.uv(), "lock", "--check", "--project", str(folder), "--python", sys.executable]
        assert subprocess.run(argv, capture_output=True).returncode == 0, name


def test_making_them_again_gives_the_same_commits(served: Sources, tmp_path: Path) -> None:
    assert sources.make(tmp_path / "another cache", served.port).commits == served.commits


def test_a_make_that_was_killed_is_done_again(served: Sources, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from scripts.local import sources; sources.make(pathlib.Path(sys.argv[1]), 1)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "cache")], cwd=REPOSITORY)
    while not list(tmp_path.glob("cache/.sources-*.part/*.git")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(tmp_path.glob("cache/sources-*"))
    assert sources.make(tmp_path / "cache", served.port).commits == served.commits


def test_the_git_server_keeps_its_port(cache: Path, tmp_path: Path) -> None:
    ports = []
    for _ in range(2):
        ports.append(sources.up(cache, tmp_path).port)
        services.down(tmp_path, "git")
    assert ports[0] == ports[1]


def test_only_pins_of_the_dockerfile_get_a_value(served: Sources) -> None:
    for image in sources.PINS:
        declared = dockerfile.pins((REPOSITORY / f"docker/Dockerfile.{image}").read_text())
        values = served.build_args(image)
        assert values.keys() <= declared.keys()
        assert {name for name in declared if name.endswith("_COMMIT")} <= values.keys()


def test_the_wheel_set_is_whole_and_for_the_local_pins(served: Sources, cache: Path, tmp_path: Path) -> None:
    root = roots.base_root(cache)
    folder = sources.wheels(cache, served, root, tmp_path)
    python = f"cp{sources.python_version(cache, root).replace('.', '')}"
    manifest = (folder / "MANIFEST").read_text().splitlines()
    assert manifest[0] == f"VLLM_FORK_COMMIT={served.commits['vllm']}"
    assert f"PY={python}" in manifest[4].split()
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True)
    (vllm,), (flash,) = folder.glob("vllm-*.whl"), folder.glob("flash_attn-*.whl")
    assert f"+g{served.commits['vllm'][:7]}" in vllm.name
    assert any(name.startswith("flash_attn_2_cuda.cpython-") for name in zipfile.ZipFile(flash).namelist())
