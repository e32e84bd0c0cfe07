"""The servers of this test run: one Iris, one registry and one git server for all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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
