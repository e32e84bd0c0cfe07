"""The local Iris: its environment, made once, and its controller and worker, started on demand."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts import cache as cached
from scripts import command, progress
from scripts.errors import CommandFailed, CommandTimeout, ToolMissing
from scripts.local import services

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
SERVER = HERE / "serve_local.py"
NAME = "iris"
PYTHONS = ("python3.12", "python3.13")
INSTALL_SECONDS = 1800
START_SECONDS = 120
INSTALL_HINT = "see what pip says; where it does not reach its index, PIP_INDEX_URL names another one."

# Of the version in requirements.txt: asking it would take two seconds of every build.
OPTIONS = frozenset({"--no-sync", "--secret", "--secret-behavior"})

# All that a task sees of the caller's environment: tasks get the whole environment of their cluster.
PASSED = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
)

# What a candidate prints: the interpreter itself, not the shim or virtual environment that started it.
PROBE = """
import ensurepip, sys, venv
assert (3, 12) <= sys.version_info < (3, 14)
print(getattr(sys, "_base_executable", sys.executable))
"""

# The console script that pip writes names the folder in which the environment was made.
LAUNCHER = """#!/bin/sh
exec "$(dirname "$0")/python" -c 'from iris.cli import main; main()' "$@"
"""


@functools.cache
def python312() -> Path:
    """A Python that Iris runs on (3.12 or 3.13: `Requires-Python` of marin-iris) and that can make a venv.

    Raises:
        ToolMissing: there is none where people have one.
    """
    for candidate in _candidates():
        if found := _answer([candidate, "-c", PROBE]):
            return Path(found)
    raise ToolMissing(
        "Iris needs Python 3.12 or 3.13, and there is none on PATH, of uv, or of pyenv.",
        "install one: `uv python install 3.12`, `pyenv install 3.12`, or the system's python3.12 "
        "with its venv package.",
    )


def environment(cache: Path) -> Path:
    """The folder of Iris' virtual environment: a cache entry, installed from the hashes in requirements.txt.

    Raises:
        ToolMissing: no Python for it.
        CommandFailed, CommandTimeout: pip could not install it.
    """
    python = python312()
    return cached.entry(
        cache, "iris", cached.key(str(python), REQUIREMENTS, LAUNCHER), lambda part: _install(python, part)
    )


def iris(env: Path) -> tuple[str, ...]:
    """The words that start the iris program of that environment."""
    return (str(env / "bin" / "iris"),)


def up(cache: Path, state: Path, on_demand: bool = True) -> services.Running:
    """Start the local controller and its worker unless they live already.

    They listen on 127.0.0.1 only, keep everything below `state`, and live until `services.down`.

    Raises:
        ToolMissing, CommandFailed, CommandTimeout: the environment, or the start.
    """
    if known := services.find(state, NAME):
        return known
    python = environment(cache) / "bin" / "python"
    port = services.free_port()
    with progress.step("starting the local Iris"):
        return services.up(
            state,
            NAME,
            [python, SERVER, str(port), state.resolve() / f"{NAME}-data"],
            port=port,
            env={name: os.environ.get(name) for name in PASSED},
            inherit_env=False,
            timeout=START_SECONDS,
            on_demand=on_demand,
        )


def controller_url(running: services.Running) -> str:
    """Where the iris program finds that controller."""
    return f"http://127.0.0.1:{running.port}"


def _candidates() -> Iterator[str]:
    yield from (sys.executable, *PYTHONS)
    if by_uv := _answer(["uv", "python", "find", "--no-project", ">=3.12,<3.14"]):
        yield by_uv
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from (str(path) for name in PYTHONS for path in sorted(pyenv.glob(f"*/bin/{name}")))


def _answer(argv: list[str]) -> str:
    # A shim on PATH may be there and still fail: only what runs counts.
    try:
        return command.output(argv, timeout=30)
    except (ToolMissing, CommandFailed, CommandTimeout):
        return ""


def _install(python: Path, part: Path) -> None:
    pip = (part / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--require-hashes")
    # The pip of Python 3.12 looks at each of 100,000 wheels twice; a newer one takes half the time.
    newer = re.findall(r"^pip==(?:.*\\\n)*.*$", REQUIREMENTS.read_text(), re.MULTILINE)
    (part / "pip.txt").write_text(newer[0])
    with progress.step("setting up the local Iris") as news:
        for argv in (
            (python, "-m", "venv", part),
            (*pip, "--requirement", part / "pip.txt"),
            (*pip, "--no-deps", "--requirement", REQUIREMENTS),
        ):
            command.run(argv, timeout=INSTALL_SECONDS, on_line=news, next_step=INSTALL_HINT)
    (part / "bin" / "iris").write_text(LAUNCHER)
