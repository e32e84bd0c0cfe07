"""Sessions around the tasks. Without `-s` nox runs `lint` and `tests`, as scripts/setup prepared them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2026.10"
nox.options.sessions = ["lint", "tests"]
nox.options.default_venv_backend = "none"

BIN = Path(sys.executable).parent
os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
SHELL_SCRIPTS = ["scripts/setup", ".ci/run", *map(str, sorted(Path().glob("docker/**/*.sh")))]
SHELL_SCRIPTS += map(str, sorted(Path("scripts").glob("**/*.sh")))
ENVIRONMENTS = {
    "scripts/iris": "3.12",
    "scripts/wheels": "3.11",
    "scripts/wheels/rehearsal": "3.12",
    "docker/wheel-sets/small": "3.12",
}
"""The folders with a requirements.in, and the oldest Python that it is for."""
PLATFORMS = ("linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, shell scripts and Dockerfiles."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("shellcheck", "--external-sources", *SHELL_SCRIPTS)
    session.run("hadolint", *map(str, sorted(Path("docker").glob("**/Dockerfile*"))))


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests: the fast ones, then real builds on this machine. Arguments go to pytest."""
    session.run("pytest", *session.posargs)


@nox.session(default=False)
def crane_wheels(session: nox.Session) -> None:
    """Build the crane wheel for every platform into dist/."""
    for platform in PLATFORMS:
        session.run(
            *("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", "./scripts/crane-wheel"),
            env={"CRANE_WHEEL_TARGET": platform},
        )


@nox.session(default=False)
def wheels(session: nox.Session) -> None:
    """Compile a wheel set natively, or find that it is made. `-- --set gpu-rl`, `-- --help`."""
    session.run("python", "-m", "scripts.wheels", *session.posargs)


@nox.session(default=False)
def wheels_rehearse(session: nox.Session) -> None:
    """Try the production set's first compilations for one architecture, stopped and resumed."""
    session.run("python", "-m", "scripts.wheels.rehearse")


@nox.session(default=False)
def versions(session: nox.Session) -> None:
    """Pin the environments anew that are not this one: each requirements.txt from its requirements.in."""
    bare = [
        "--generate-hashes",
        "--no-annotate",
        "--no-header",
        "--no-emit-index-url",
        "--no-emit-find-links",
    ]
    for folder, python in ENVIRONMENTS.items():
        pins = ["--output-file", f"{folder}/requirements.txt", f"{folder}/requirements.in"]
        session.run(
            "uv", "pip", "compile", "--upgrade", "--universal", "--python-version", python, *bare, *pins
        )


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure this project against named peers, as ratios. Arguments choose among its parts."""
    session.run("python", "-m", "tests.bench", *session.posargs)
