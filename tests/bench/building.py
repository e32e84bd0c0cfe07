"""Set-up, start-up and builds.

The peers: the bare kaniko executor on the same Dockerfile, context and kind of root; `invoke --list` of an
empty tasks file; the second run of the README's own command.
"""

from __future__ import annotations

import re
import shutil
import statistics
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from scripts import command
from scripts.local import sandbox
from tests.bench.measure import median, peak_memory, servers, show, timed
from tests.conftest import CACHE
from tests.local.place import INV, ROOT, Place, context

REPEATS = 3
LIST_REPEATS = 15
LAYER_MB = 60
BIG_LAYERS = f"RUN head -c {LAYER_MB}000000 /dev/urandom > /layer-%d\n"


def run(work: Path) -> None:
    """Run every measurement of building and print one line each."""
    first_and_second_run(work / "fresh")
    start_up(work)
    with servers(work / "state") as place:
        build_against_bare_executor(place, work)
        memory_as_layers_grow(place, work)


def first_and_second_run(work: Path) -> None:
    """The README's command on a fresh clone with an empty cache and home, and again; by phase."""
    clone, home = work / "clone", work / "home"
    home.mkdir(parents=True)
    command.run(["git", "clone", "--quiet", ROOT, clone], timeout=60)
    env = {"HOME": str(home), "GOCACHE": None, "GOMODCACHE": None, "GOPATH": str(home / "go")}
    env |= dict.fromkeys(("XDG_CACHE_HOME", "XDG_STATE_HOME", "INVOKE_PATHS_STATE", "VIRTUAL_ENV"))
    lines: list[str] = []

    def whole() -> None:
        words = ["bash", "-c", "scripts/setup && .venv/bin/inv build.gpurl"]
        command.run(words, timeout=3600, cwd=clone, env=env, on_line=lines.append)

    first = timed(whole)
    show_phases("first run", lines)
    lines.clear()
    second = timed(whole)
    show_phases("second run", lines)
    show("first run", first, "second run", second, "s")


def show_phases(name: str, lines: list[str]) -> None:
    """Print the times that the set-up and the build themselves tell."""
    told = re.compile(r"(setup: .*: \d+ s|    \S.*: \d+ s|  phases .*)")
    print(
        f"{name}, by phase: " + "; ".join(line.strip() for line in lines if told.fullmatch(line)), flush=True
    )


def start_up(work: Path) -> None:
    """`inv --list` against a bare `invoke --list` of an empty tasks file."""
    empty = work / "empty"
    empty.mkdir()
    (empty / "tasks.py").touch()
    ours = median(lambda: command.run([INV, "--list"], timeout=60, cwd=ROOT), LIST_REPEATS)
    bare = [Path(sys.executable).with_name("invoke"), "--list"]
    theirs = median(lambda: command.run(bare, timeout=60, cwd=empty, ok=None), LIST_REPEATS)
    show("inv --list", ours, "invoke --list, empty", theirs, "s")


def build_against_bare_executor(place: Place, work: Path) -> None:
    """A whole local build of gpu-rl, less the start of its job, against the bare executor."""
    builds = []
    for _ in range(REPEATS):
        began = time.monotonic()
        record, _ = place.build("gpurl")
        builds.append((time.monotonic() - began, job_start(record)))
    whole, start = (statistics.median(column) for column in zip(*builds, strict=True))
    bare = statistics.median(bare_executor(record, work) for _ in range(REPEATS))
    print(f"start of the job: {start:.1f} s")
    show("whole build of gpu-rl less the job's start", whole - start, "bare executor", bare, "s")


def job_start(record: dict[str, Any]) -> float:
    """Seconds from the record's first writing to the first phase of the build script."""
    first = datetime.fromisoformat(record["began"])
    return (first - datetime.fromisoformat(record["created"])).total_seconds()


def bare_executor(record: dict[str, Any], work: Path) -> float:
    """Seconds of the executor alone: same Dockerfile, context, ARGs, wheels and kind of root."""
    inputs = record["inputs"]
    bundle = work / "bundle"
    shutil.rmtree(bundle, ignore_errors=True)
    (bundle / "ctx").mkdir(parents=True)
    command.run(["git", "-C", ROOT, "archive", "--output", bundle / "ctx.tar", "HEAD"], timeout=60)
    command.run(["tar", "-xf", bundle / "ctx.tar", "-C", bundle / "ctx"], timeout=60)
    command.run(["crane", "export", inputs["EXECUTOR_IMAGE"], bundle / "executor.tar"], timeout=60)
    command.run(["crane", "export", inputs["WHEELHOUSE"], bundle / "wheels.tar"], timeout=60)
    arguments = [*inputs["BUILD_ARGS"].splitlines(), f"GITSHA={inputs['GITSHA']}"]
    flags = " ".join(f"'--build-arg={argument}'" for argument in arguments)
    script = (
        "tar -xf executor.tar -C / && mkdir -p /kaniko/ctx && cp -R ctx/. /kaniko/ctx && "
        "tar -xf wheels.tar -C /kaniko/ctx/docker/wheelhouse --strip-components=1 && "
        f"exec /kaniko/executor --force --context=dir:///kaniko/ctx --dockerfile={inputs['DOCKERFILE']} "
        "--no-push --oci-layout-path=/kaniko/oci --destination=bench/bench:1 --skip-unused-stages "
        f"--compressed-caching=false {flags}"
    )
    root = task_root()
    words = [*sandbox.command_prefix(root, work / "roots", 6_000_000_000), "sh", "-c", script]
    return timed(lambda: command.run(words, timeout=1800, env={"IRIS_WORKDIR": str(bundle)}))


def task_root() -> Path:
    """The root that plays the task image."""
    from scripts.local import roots

    return roots.task_root(CACHE)


def memory_as_layers_grow(place: Place, work: Path) -> None:
    """Peak memory of the executor for two large layers against eight."""
    peaks = []
    for count in (2, 8):
        folder = context(work / f"layers-{count}", "".join(BIG_LAYERS % number for number in range(count)))
        with peak_memory("/kaniko/executor") as peak:
            place.build("tpu", f"--context={folder}")
        peaks.append(peak[0])
    show("peak memory of the executor, 8 layers of 60 MB", peaks[1] / 1e6, "2 layers", peaks[0] / 1e6, "MB")
