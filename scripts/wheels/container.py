"""Compiles a set in a container: the Dockerfile's stage of the wheels, and only its result comes out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from scripts import cache
from scripts.settings import Settings
from scripts.wheels import check, environments, objects, preflight
from scripts.wheels.check import Kept
from scripts.wheels.sets import ROOT, Target

STAGE = "wheel-builder"
STEPS = ROOT / "docker" / "steps"


def wheels(target: Target, settings: Settings) -> list[Kept]:
    """Look at the machine, then let buildx build the stage; docker keeps what was done when it is stopped.

    Raises:
        ToolMissing: the machine lacks something, docker included; nothing was downloaded.
        CommandFailed, CommandTimeout: docker.
        WheelsRefused: a wheel is not what it must be.
    """
    chosen = target.wheel_set
    jobs = preflight.chosen_jobs(target)
    findings = preflight.common(target, jobs, settings.cache)
    preflight.require(target, [*findings, preflight.program("docker")])
    own = [*chosen.pins, *(arg for wheel in chosen.wheels for arg in wheel.args), "BASE_IMAGE"]
    sources: list[str | Path] = [
        target.values["SOURCES"],
        target.values["PLATFORM"],
        ROOT / chosen.dockerfile,
    ]
    key = cache.key(json.dumps(target.pinned(*own)), *sources, *sorted(STEPS.iterdir()))

    def make(part: Path) -> None:
        log = settings.state / "wheelhouse" / "logs" / f"docker-{chosen.name}-{key}.log"
        objects.run(buildx(target, jobs, part / "export"), {}, log, f"compiling {chosen.name} in docker")
        tools = environments.tools(settings.cache)
        for wheel in chosen.wheels:
            check.keep(part / "export" / "wheels", part, wheel, target, tools, None)
        shutil.rmtree(part / "export")

    entry = cache.entry(settings.cache, f"wheels-docker-{chosen.name}", key, make)
    return [check.kept(entry, wheel) for wheel in chosen.wheels]


def buildx(target: Target, jobs: preflight.Jobs, export: Path) -> list[str]:
    """The command. The platform is said, because a variable of docker's could ask for an emulated one."""
    arguments = [f"--build-arg={name}={value}" for name, value in jobs.env.items()]
    platform = {"linux_x86_64": "linux/amd64", "linux_aarch64": "linux/arm64"}[target.values["PLATFORM"]]
    return [
        *("docker", "buildx", "build", f"--file={ROOT / target.wheel_set.dockerfile}", f"--target={STAGE}"),
        *(f"--platform={platform}", "--progress=plain", f"--output=type=local,dest={export}"),
        *(*arguments, str(ROOT)),
    ]
