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
PLATFORMS = ("linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, shell scripts and Dockerfiles."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("shellcheck", "--external-sources", *SHELL_SCRIPTS)
    session.run("hadolint", *map(str, sorted(Path("docker").glob("Dockerfile.*"))))


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
def iris_versions(session: nox.Session) -> None:
    """Pin the environment of the local Iris anew, from scripts/iris/requirements.in."""
    bare = [
        "--generate-hashes",
        "--no-annotate",
        "--no-header",
        "--no-emit-index-url",
        "--no-emit-find-links",
    ]
    pins = ["--output-file", "scripts/iris/requirements.txt", "scripts/iris/requirements.in"]
    session.run("uv", "pip", "compile", "--upgrade", "--universal", "--python-version", "3.12", *bare, *pins)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure this project against named peers, as ratios. Arguments choose among its parts."""
    session.run("python", "-m", "tests.bench", *session.posargs)
