"""Compiles a set with the compilers of this machine, each wheel as a cache entry of its own."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from scripts import cache, command
from scripts.settings import Settings
from scripts.wheels import check, environments, objects, preflight, sets
from scripts.wheels.check import Kept, Tools
from scripts.wheels.preflight import Finding, Jobs
from scripts.wheels.sets import ROOT, Target, Wheel

SCRIPT = ROOT / "docker" / "build_wheels.sh"
STEP = ROOT / "docker" / "steps" / "compile-wheel.sh"

PROGRAMS = ("git", "setpriv")


@dataclass(frozen=True)
class Native:
    """A machine that may compile: its jobs, its CUDA toolkit, the environment's Python, the tools."""

    target: Target
    settings: Settings
    jobs: Jobs
    home: Path
    python: Path
    tools: Tools

    def wheel(self, wheel: Wheel) -> Kept:
        """One wheel, compiled now or before.

        Raises:
            CommandFailed, CommandTimeout: git, pip or a compiler.
            WheelsRefused: the wheel is not what it must be.
        """
        key = self._key(wheel)
        work = self.settings.cache / preflight.WORK / f"{wheel.name}-{key}"
        log = self.settings.state / "wheelhouse" / "logs" / f"{wheel.name}-{key}.log"

        def make(part: Path) -> None:
            self.build(wheel, work, log)
            check.keep(work / "out", part, wheel, self.target, self.tools, self.python)

        entry = cache.entry(self.settings.cache, f"wheel-{wheel.name}", key, make)
        _remove(work)
        return check.kept(entry, wheel)

    def build(self, wheel: Wheel, work: Path, log: Path, *, enough: int = 0) -> None:
        """Compile in a work folder, to work/out; what was begun there goes on. See objects.run."""
        # However this process ends, the build ends with it: two of them must not share a folder.
        words: command.Argv = ["setpriv", "--pdeathsig", "TERM", "bash", SCRIPT, wheel.name, work]
        objects.run(words, self._env(wheel), log, f"compiling {wheel.name}", enough=enough)

    def _env(self, wheel: Wheel) -> dict[str, str | None]:
        env = {
            **self.jobs.env,
            "CUDA_HOME": str(self.home),
            "PYTHON": str(self.python),
            "TORCH_CUDA_ARCH_LIST": self.target.key["TORCH_CUDA_ARCH_LIST"],
        }
        if wheel.source:
            return {**preflight.CLEAN, **env, "SOURCE": str(ROOT / wheel.source)}
        values = self.target.values
        return {**preflight.CLEAN, **env, "REPO": values[wheel.repo], "COMMIT": values[wheel.commit]}

    def _key(self, wheel: Wheel) -> str:
        """Over all that decides what the wheel is; not over where its source comes from."""
        chosen = self.target.wheel_set
        pins = self.target.pinned(*chosen.pins, *wheel.args)
        files = [SCRIPT, STEP, *([ROOT / chosen.requirements] if chosen.requirements else [])]
        source = sets.source_key(ROOT / wheel.source) if wheel.source else ""
        return cache.key(json.dumps(pins), self.target.values["PLATFORM"], source, *files)


def _remove(work: Path) -> None:
    """Remove a work folder whole or not at all: nothing is compiled from half a source."""
    if work.exists():
        work.rename(work.with_name(f".{work.name}.{uuid.uuid4().hex[:8]}"))
    for left in work.parent.glob(f".{work.name}.*"):
        shutil.rmtree(left, ignore_errors=True)


def wheels(target: Target, settings: Settings) -> list[Kept]:
    """Compile what is missing.

    Raises:
        ToolMissing: see machine.
        CommandFailed, CommandTimeout, WheelsRefused: see Native.wheel.
    """
    here = machine(target, settings)
    return [here.wheel(wheel) for wheel in target.wheel_set.wheels]


def machine(target: Target, settings: Settings) -> Native:
    """Look at the machine, and give it what compiles the set.

    Raises:
        ToolMissing: the machine lacks something; nothing was downloaded.
        CommandFailed, CommandTimeout: uv or git.
    """
    jobs = preflight.chosen_jobs(target)
    interpreter, python = preflight.python(target.values["PYTHON_VERSION"])
    home = None if packaged(target) else preflight.toolkit(os.environ)
    programs = [preflight.program(name) for name in PROGRAMS]
    findings = [*preflight.common(target, jobs, settings.cache), interpreter, *programs]
    preflight.require(target, findings if packaged(target) else [*findings, *compilers(home, target)])
    environment = environments.compiling(settings.cache, target, python)
    if not home:
        home = environments.packaged_toolkit(environment)
        preflight.require(target, compilers(home, target))
    interpreter_path = environment / "bin" / "python"
    return Native(target, settings, jobs, home, interpreter_path, environments.tools(settings.cache))


def packaged(target: Target) -> bool:
    """Whether nvcc comes with the environment: where nobody names a toolkit, and the set's file has one."""
    requirements = target.wheel_set.requirements
    return bool(requirements) and "CUDA_HOME" not in os.environ


def compilers(home: Path | None, target: Target) -> list[Finding]:
    """nvcc, and the host compiler that it takes."""
    return [preflight.nvcc(home, target), *([preflight.compiler(home)] if home else [])]
