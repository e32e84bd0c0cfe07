"""What `nox -s wheels_rehearse` calls: the production set's first objects, stopped, and resumed.

flash-attn's source archive, the pinned torch and a real nvcc, all as package indexes carry them (so of
another CUDA than the image's), for one GPU architecture. It proves the flags, not the hours.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

from scripts import command, settings
from scripts.errors import WheelsRefused
from scripts.progress import say
from scripts.settings import Settings
from scripts.wheels import check, environments, native, preflight, sets
from scripts.wheels.native import Native
from scripts.wheels.session import configuration, ended
from scripts.wheels.sets import Target, Wheel

FOLDER = Path(__file__).with_name("rehearsal")
REQUIREMENTS, SOURCE = FOLDER / "requirements.txt", FOLDER / "source.txt"
ARCHITECTURE, CUDA_INDEX = "9.0", "cu130"
FIRST, MORE = 2, 1
"""Objects that are compiled before the stop, and after it."""
MEMORY, DISK = 13_000_000_000, 12_000_000_000


def target() -> Target:
    """flash-attn of the production set, for one architecture, in the rehearsal's environment."""
    production = sets.target(sets.load(sets.PRODUCTION))
    wheels = tuple(wheel for wheel in production.wheel_set.wheels if wheel.name == "flash-attn")
    wheel_set = replace(
        production.wheel_set,
        name="rehearsal",
        wheels=wheels,
        requirements=str(REQUIREMENTS.relative_to(sets.ROOT)),
        memory=MEMORY,
        disk=DISK,
    )
    cuda = {"CUDA_INDEX": CUDA_INDEX, "CUDA": sets.cuda_version(CUDA_INDEX)}
    return Target(wheel_set, {**production.values, **cuda, "TORCH_CUDA_ARCH_LIST": ARCHITECTURE})


def rehearse(chosen: Settings) -> None:
    """Compile the first objects, stop as Ctrl-C does, go on, and look at what was made.

    Raises:
        ToolMissing, CommandFailed, CommandTimeout: see native.machine and the build.
        WheelsRefused: an object was compiled twice, or is for another architecture.
    """
    # A job in a shell's background ignores interrupts, and hands that on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    machine = native.machine(target(), chosen)
    wheel = machine.target.wheel_set.wheels[0]
    work = chosen.cache / preflight.WORK / "rehearsal"
    shutil.rmtree(work, ignore_errors=True)
    unpack(machine, wheel, work)
    first = until(machine, wheel, work, FIRST)
    second = until(machine, wheel, work, MORE)
    if again := [path.name for path, changed in first.items() if second.get(path) != changed]:
        raise WheelsRefused(f"After the stop these were compiled again: {', '.join(again)}.")
    code = check.gpu_code(second, machine.tools.cuobjdump)
    check.same_architectures("The first objects", code, ARCHITECTURE)
    say(f"{len(first)} objects, stopped, {len(second) - len(first)} more; GPU code for {';'.join(code)}.")
    shutil.rmtree(work)


def unpack(machine: Native, wheel: Wheel, work: Path) -> None:
    """The source archive of the package index, where a build that goes on looks for its source."""
    # pip asks the project for its metadata, and that asks for torch and nvcc.
    path = os.pathsep.join([str(machine.python.parent), str(machine.home / "bin"), os.environ["PATH"]])
    pip: command.Argv = [
        machine.python,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
    ]
    words: command.Argv = [
        *pip,
        "--no-binary=:all:",
        "--require-hashes",
        "--dest",
        work,
        "--requirement",
        SOURCE,
    ]
    env = {**preflight.CLEAN, "CUDA_HOME": str(machine.home), "PATH": path}
    command.run(words, timeout=600, env=env, next_step=environments.INSTALL_HINT)
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    (work / archive.name.removesuffix(".tar.gz")).rename(work / "source")


def until(machine: Native, wheel: Wheel, work: Path, enough: int) -> dict[Path, int]:
    """Compile until so many more objects are there; each object and the time of its last change.

    Raises:
        KeyboardInterrupt: a person's own.
    """
    log = machine.settings.state / "wheelhouse" / "logs" / "rehearsal.log"
    before = compiled(work)
    try:
        machine.build(wheel, work, log, enough=enough)
    except KeyboardInterrupt:
        if len(compiled(work)) < len(before) + enough:
            raise
    return compiled(work)


def compiled(work: Path) -> dict[Path, int]:
    """The objects in a work folder, and the time of each one's last change, in nanoseconds."""
    return {path: path.stat().st_mtime_ns for path in sorted(work.rglob("*.o"))}


def main() -> int:
    """Rehearse; returns the exit code (docs/exit-codes.md)."""
    return ended(lambda: rehearse(settings.read(configuration())))


if __name__ == "__main__":
    sys.exit(main())
