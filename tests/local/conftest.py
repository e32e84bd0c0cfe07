"""The servers of this test run: one Iris, one registry and one git server for all tests."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.local import registry, services
from tests.conftest import git
from tests.local.images import DOCKERFILE, TABLE, Repository
from tests.local.place import Place, without_tokens


@pytest.fixture(scope="session", autouse=True)
def programs_on_path() -> Iterator[None]:
    """The programs of this environment (crane, uv) come first, as in an activated one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
        yield


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place whose servers run for the whole session."""
    found = Place(tmp_path_factory.mktemp("state"), without_tokens())
    found.inv("local.up")
    yield found
    found.inv("local.down")


@pytest.fixture(scope="session")
def host(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of a registry for images that are made by hand."""
    state = tmp_path_factory.mktemp("registry")
    yield f"127.0.0.1:{registry.up(cache, state).port}"
    services.down(state, "registry")


@pytest.fixture
def repository(host: str, request: pytest.FixtureRequest) -> Repository:
    """A repository of the test's own in that registry."""
    return Repository(host, f"team/{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkout with the table and the Dockerfile of the small image."""
    folder = tmp_path / "source"
    (folder / "docker").mkdir(parents=True)
    (folder / "docker/images.toml").write_text(TABLE)
    (folder / "docker/Dockerfile.tpu").write_text(DOCKERFILE)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "one")
    return folder
