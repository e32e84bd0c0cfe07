"""Looks at the machine before anything is downloaded: what a compile needs, and what was found."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.command import output
from scripts.errors import CommandFailed, CommandTimeout, InputError, ToolMissing
from scripts.progress import say
from scripts.wheels import manifest
from scripts.wheels.sets import Target, WheelSet

WORK = "wheel-work"
"""The folder of the cache in which wheels are compiled."""
NO_LIMIT = 1 << 60
"""A cgroup limit above this means: none."""
CLEAN: Mapping[str, str | None] = dict.fromkeys(
    ("UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_PROJECT_ENVIRONMENT", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
)
"""What a person's shell, or a runner of sessions, may have set: it would lead uv and Python elsewhere."""
PYTHON_PROBE = """
import pathlib, sys, sysconfig
assert pathlib.Path(sysconfig.get_path("include"), "Python.h").exists()
print("%d.%d" % sys.version_info[:2], getattr(sys, "_base_executable", sys.executable))
"""


@dataclass(frozen=True)
class Finding:
    """One thing that a compile needs: how much of it, what is there, and whether that will do."""

    what: str
    needed: str
    found: str
    fits: bool


@dataclass(frozen=True)
class Jobs:
    """How many compilers run at once, and how many threads each has."""

    max_jobs: int
    nvcc_threads: int

    @property
    def env(self) -> dict[str, str]:
        """The variables by which build systems know them."""
        return {"MAX_JOBS": str(self.max_jobs), "NVCC_THREADS": str(self.nvcc_threads)}


def needed(jobs: Jobs, thread_memory: int) -> int:
    """Bytes that the jobs need: each thread compiles for one architecture; one more for what runs beside."""
    return (jobs.max_jobs * jobs.nvcc_threads + 1) * thread_memory


def memory(root: Path = Path("/")) -> int:
    """Bytes that this process may use: the least of the machine's memory and the limits of its cgroups.

    Version 1 and version 2 alike. A cgroup's limit holds for those below it, so each level counts.

    Args:
        root: where proc and sys are.
    """
    total = re.search(r"MemTotal:\s+(\d+) kB", (root / "proc/meminfo").read_text())
    limits = [int(path.read_text()) for path in _limits(root) if path.read_text().strip().isdigit()]
    return min(limit for limit in (int(total[1]) * 1024 if total else NO_LIMIT, *limits) if limit <= NO_LIMIT)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def jobs(cores: int, memory: int, thread_memory: int, architectures: int, env: Mapping[str, str]) -> Jobs:
    """What MAX_JOBS and NVCC_THREADS say, else what cores and memory (bytes; those of a thread) allow.

    Raises:
        InputError: one of them is not a number of one or more.
    """
    threads = _number(env, "NVCC_THREADS") or min(2, cores, architectures)
    of_memory = (memory // thread_memory - 1) // threads
    return Jobs(_number(env, "MAX_JOBS") or max(1, min(cores // threads, of_memory)), threads)


def chosen_jobs(target: Target) -> Jobs:
    """The jobs for this machine and this set."""
    count = len(manifest.architectures(target.key["TORCH_CUDA_ARCH_LIST"]))
    return jobs(cores(), memory(), target.wheel_set.thread_memory, count, os.environ)


def common(target: Target, chosen: Jobs, cache: Path) -> list[Finding]:
    """What either engine needs: the architecture, the memory, the disk.

    Where somebody chose MAX_JOBS, their memory counts, and not what the set asks for.
    """
    asked = needed(chosen, target.wheel_set.thread_memory)
    wanted = asked if "MAX_JOBS" in os.environ else target.wheel_set.memory
    here, there = f"{sys.platform}_{platform.machine()}", target.values["PLATFORM"]
    found = memory()
    say(f"    jobs: {chosen.max_jobs}, with {chosen.nvcc_threads} threads each (MAX_JOBS, NVCC_THREADS)")
    return [
        Finding("architecture", there, here, here == there),
        Finding("memory", _gb(wanted), _gb(found), found >= wanted),
        _disk(cache, target.wheel_set),
    ]


def nvcc(home: Path | None, target: Target) -> Finding:
    """The toolkit's CUDA is the pinned minor version: torch refuses another, or loads another at run time."""
    wanted = target.key["CUDA"]
    found = version(home) if home else ""
    return Finding("nvcc", wanted, f"{found} in {home}" if found else "none", found == wanted)


def compiler(home: Path) -> Finding:
    """nvcc takes the host compiler: by the limit that its own header states."""
    header = home / "include/crt/host_config.h"
    limit = re.search(r"__GNUC__ > (\d+)", header.read_text(errors="replace")) if header.exists() else None
    found = _answer("g++", "-dumpfullversion")
    accepted = bool(found) and (limit is None or int(found.split(".")[0]) <= int(limit[1]))
    return Finding("g++", f"at most {limit[1]}" if limit else "any", found or "none", accepted)


def python(version: str) -> tuple[Finding, str]:
    """A Python of that minor version with its headers, and the path of its interpreter."""
    for candidate in _pythons(version):
        found, _, path = _answer(candidate, "-c", PYTHON_PROBE).partition(" ")
        if found == version:
            return Finding("Python", version, path, True), path
    return Finding("Python", f"{version} with Python.h", "none", False), ""


def program(name: str) -> Finding:
    """A program on PATH."""
    path = shutil.which(name)
    return Finding(name, "on PATH", path or "none", bool(path))


def toolkit(env: Mapping[str, str]) -> Path | None:
    """The folder of the CUDA toolkit: CUDA_HOME, else that of the nvcc on PATH."""
    if home := env.get("CUDA_HOME"):
        return Path(home)
    found = shutil.which("nvcc")
    return Path(found).resolve().parents[1] if found else None


def version(home: Path) -> str:
    """The minor version that a toolkit's nvcc says of itself; empty: it does not run."""
    match = re.search(r"release (\d+\.\d+)", _answer(str(home / "bin" / "nvcc"), "--version"))
    return match[1] if match else ""


def require(target: Target, findings: list[Finding]) -> None:
    """Show what was found.

    Raises:
        ToolMissing: something is missing; all of it is named, with what is needed and what was found.
    """
    for finding in findings:
        say(f"    {finding.what}: needed {finding.needed}, found {finding.found}")
    if lacking := [finding for finding in findings if not finding.fits]:
        named = "; ".join(f"{each.what} (needed {each.needed}, found {each.found})" for each in lacking)
        raise ToolMissing(
            f"This machine cannot compile the wheel set {target.wheel_set.name}: {named}.",
            f"take one that can: Linux on {target.values['PLATFORM'].removeprefix('linux_')} with CUDA "
            f"{target.key['CUDA']} (CUDA_HOME names it); MAX_JOBS=1 needs the least memory.",
        )


def _limits(root: Path) -> Iterator[Path]:
    """The files that may state a limit, for each cgroup from this process' own to the outermost."""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        own = Path(path.strip("/"))
        for level in (own, *own.parents):  # a container sees its own as the outermost
            files = (folder / level / name for name in ("memory.max", "memory.limit_in_bytes"))
            yield from (file for file in files if file.exists())


def _disk(cache: Path, wheel_set: WheelSet) -> Finding:
    """What a run that was stopped has taken already is not needed again."""
    begun = [cache / WORK, *cache.glob(f"wheel-environment-{wheel_set.name}-*")]
    taken = sum(path.lstat().st_size for folder in begun for path in folder.rglob("*"))
    there = next(path for path in (cache, *cache.parents) if path.exists())
    needed, free = max(0, wheel_set.disk - taken), shutil.disk_usage(there).free
    return Finding(f"disk at {cache}", _gb(needed), _gb(free), free >= needed)


def _pythons(version: str) -> Iterator[str]:
    yield f"python{version}"
    if by_uv := _answer("uv", "python", "find", "--no-project", "--no-python-downloads", version):
        yield by_uv
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from map(str, sorted(pyenv.glob(f"{version}*/bin/python")))


def _answer(*argv: str) -> str:
    # A shim on PATH may be there and still fail: only what runs counts.
    try:
        return output(argv, timeout=60, env=CLEAN)
    except (ToolMissing, CommandFailed, CommandTimeout):
        return ""


def _number(env: Mapping[str, str], name: str) -> int:
    value = env.get(name, "")
    if value and (not value.isdigit() or int(value) < 1):
        raise InputError(f"{name} is {value!r}.", "give a whole number of one or more, or unset it.")
    return int(value or 0)


def _gb(bytes_: int) -> str:
    return f"{bytes_ / 1e9:.1f} GB"
