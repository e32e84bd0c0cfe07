"""The environments of a compile: what compiles in them, and what looks into wheels. Cache entries all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts import cache, command
from scripts.errors import ToolMissing
from scripts.progress import step
from scripts.wheels import preflight
from scripts.wheels.check import Tools
from scripts.wheels.sets import ROOT, Target

STEPS = ROOT / "docker" / "steps"
TOOLS = Path(__file__).with_name("requirements.txt")
INSTALL_SECONDS = 3600.0
INSTALL_HINT = "see what uv says; where it does not reach its index, UV_DEFAULT_INDEX names another one."


def compiling(cache_folder: Path, target: Target, python: str) -> Path:
    """The environment that the wheels of a set are compiled in: from its file of hashes, or the locked one.

    Raises:
        CommandFailed, CommandTimeout: uv or git.
    """
    name = f"wheel-environment-{target.wheel_set.name}"
    if target.wheel_set.requirements:
        return _installed(cache_folder, name, python, ROOT / target.wheel_set.requirements)
    pins = {**target.pinned(*target.wheel_set.pins), "SKYRL_REPO": target.values["SKYRL_REPO"]}

    def make(part: Path) -> None:
        words: command.Argv = [STEPS / "locked-environment.sh", part / "environment", part / "source"]
        env = {**preflight.CLEAN, **pins, "PYTHON_VERSION": python}
        with step("installing the trainer's locked environment") as news:
            _install(words, env, news)

    steps = sorted(path for path in STEPS.iterdir() if path.is_file())
    key = cache.key(json.dumps(pins), python, *steps)
    return cache.entry(cache_folder, name, key, make) / "environment"


def tools(cache_folder: Path) -> Tools:
    """auditwheel and cuobjdump, in an environment of their own.

    Raises:
        CommandFailed, CommandTimeout: uv could not install them.
    """
    environment = _installed(cache_folder, "wheel-tools", sys.executable, TOOLS)
    found = sorted(environment.glob("lib/python*/site-packages/nvidia/*/bin/cuobjdump"))
    return Tools(environment / "bin" / "python", found[0])


def packaged_toolkit(environment: Path) -> Path:
    """The CUDA toolkit that NVIDIA's packages make in an environment.

    Raises:
        ToolMissing: none of them is in it.
    """
    found = sorted(environment.glob("lib/python*/site-packages/nvidia/*/bin/nvcc"))
    if not found:
        raise ToolMissing(f"There is no nvcc in {environment}.", "set CUDA_HOME to a CUDA toolkit.")
    return found[0].parents[1]


def _installed(cache_folder: Path, name: str, python: str, requirements: Path) -> Path:
    def make(part: Path) -> None:
        # Relocatable: it gets its own name in the cache when it is whole.
        venv: command.Argv = ["uv", "venv", "--relocatable", "--python", python, part / "environment"]
        hashes = ("--require-hashes", "--requirement", requirements)
        install: command.Argv = ["uv", "pip", "install", "--python", part / "environment/bin/python", *hashes]
        with step(f"installing {name}") as news:
            for words in (venv, install):
                _install(words, preflight.CLEAN, news)

    return cache.entry(cache_folder, name, cache.key(python, requirements), make) / "environment"


def _install(words: command.Argv, env: Mapping[str, str | None], news: Callable[[str], None]) -> None:
    patient = {"UV_HTTP_TIMEOUT": "600", "UV_HTTP_RETRIES": "5"}
    command.run(words, timeout=INSTALL_SECONDS, env={**patient, **env}, on_line=news, next_step=INSTALL_HINT)
