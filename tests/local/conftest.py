"""The servers of this test run: one Iris, one registry and one git server for all tests."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.local import registry, services
from tests.local.images import Repository, small_checkout
from tests.local.place import TOKEN, Place, without_tokens


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
    return small_checkout(tmp_path / "source")


@pytest.fixture(scope="session")
def gpurl(place: Place) -> dict[str, Any]:
    """A build of gpu-rl, with a token of the user's."""
    return place.build("gpurl", REGISTRY_USER="someone", REGISTRY_TOKEN=TOKEN)[0]


@pytest.fixture(scope="session")
def tpu(place: Place) -> dict[str, Any]:
    """A build of tpu."""
    return place.build("tpu")[0]
