"""The small wheel set, compiled by a real nvcc: made once, found again, repaired, and resumed."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts import command
from scripts.errors import WheelsRefused
from scripts.wheels import check, environments, manifest, preflight, sets
from tests.conftest import git

ROOT = Path(__file__).resolve().parents[2]
WHEELS = [sys.executable, "-m", "scripts.wheels"]
SECONDS = 600.0
ENVIRONMENTS = ("wheel-environment-*", "wheel-tools-*")
DOCKER = """#!/bin/sh
# Stands for docker: it keeps its arguments, and "exports" what lies in $EXPORTED.
printf '%s\\n' "$@" > "$SEEN"
for word; do case $word in --output=type=local,dest=*) dest=${word#*dest=} ;; esac; done
mkdir -p "$dest/wheels" && cp "$EXPORTED"/*.whl "$dest/wheels/"
"""


@dataclass(frozen=True)
class Place:
    """A cache and a state folder of a test's own."""

    folder: Path

    @property
    def house(self) -> Path:
        return self.folder / "state/wheelhouse/small" / os.uname().machine

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def env(self, **more: str) -> dict[str, str | None]:
        own = {"INVOKE_PATHS_CACHE": str(self.cache), "INVOKE_PATHS_STATE": str(self.folder / "state")}
        # What a person's shell may have set for other work must not lead elsewhere.
        leaks = {"UV_PYTHON": "3.8", "UV_SYSTEM_PYTHON": "1", "VIRTUAL_ENV": "/nowhere"}
        return {"CUDA_HOME": None, "MAX_JOBS": None, "NVCC_THREADS": None, **leaks, **own, **more}

    def make(self, *words: str, ok: tuple[int, ...] = (0,), **more: str) -> str:
        """Run the session's command to its end; what a person was shown."""
        result = command.run([*WHEELS, *words], timeout=SECONDS, cwd=ROOT, env=self.env(**more), ok=ok)
        return result.stderr

    def entry(self, name: str) -> Path:
        (found,) = self.cache.glob(f"wheel-{name}-????????????????")
        return found


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, str]:
    """The set compiled in an empty cache, and what was shown."""
    place = Place(tmp_path_factory.mktemp("wheels"))
    return place, place.make()


@pytest.fixture
def copy(first: tuple[Place, str], tmp_path: Path) -> Place:
    """The same state for a test that changes it; the environments, which none changes, by a link."""
    original, place = first[0], Place(tmp_path / "wheels")
    shutil.copytree(original.folder, place.folder, ignore=shutil.ignore_patterns(*ENVIRONMENTS))
    link_environments(original, place)
    return place


def link_environments(original: Place, place: Place) -> None:
    """Let a place use the environments of another."""
    place.cache.mkdir(parents=True, exist_ok=True)
    for pattern in ENVIRONMENTS:
        for entry in original.cache.glob(pattern):
            (place.cache / entry.name).symlink_to(entry)


def test_an_unconfigured_clone_makes_the_small_set_and_says_so(first: tuple[Place, str]) -> None:
    place, shown = first
    assert shown.splitlines()[0].startswith("Wheel set small (the cluster is local; --set gpu-rl")
    found = manifest.read(place.house)
    assert found
    assert found.key == sets.target(sets.load("small")).key
    assert all(entry.level.startswith("manylinux_2_") for entry in found.wheels)
    written = {entry.name: (entry.sha256, entry.size) for entry in found.wheels}
    wheels = {path.name: path.read_bytes() for path in place.house.glob("*.whl")}
    assert written == {name: (hashlib.sha256(data).hexdigest(), len(data)) for name, data in wheels.items()}
    assert {name.partition("-")[0] for name in wheels} == {"cuda_axpy", "cuda_dot"}
    command.run(["sha256sum", "--check", "--strict", manifest.SUMS], timeout=30, cwd=place.house)


def test_the_wheels_install_and_load_where_no_gpu_is(first: tuple[Place, str], tmp_path: Path) -> None:
    place, _ = first
    _, python = preflight.python(sets.target(sets.load("small")).values["PYTHON_VERSION"])
    install = ["uv", "pip", "install", "--quiet", "--no-index", "--python", python, "--target", tmp_path]
    command.run([*install, *place.house.glob("*.whl")], timeout=60)
    use = (
        "import array, cuda_axpy, cuda_dot\n"
        "x = array.array('f', [1, 2])\n"
        "try: print(cuda_dot.dot(x, x), cuda_axpy.axpy(2, x, x))\n"
        "except RuntimeError as told: print(told)\n"
        "try: cuda_dot.dot(x, x[:1])\n"
        "except ValueError as told: print(told)\n"
    )
    env = {"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    told = command.output([python, "-c", use], env=env).splitlines()
    assert told[0].startswith("dot: ")
    assert "CUDA" in told[0]
    assert told[1] == "dot: x and y are not two vectors of float32 of one length"


def test_a_repeated_run_does_nothing(first: tuple[Place, str]) -> None:
    place, _ = first
    before = {path: path.stat().st_mtime_ns for path in place.folder.rglob("*") if path.is_file()}
    shown = place.make(CUDA_HOME="/nowhere")
    assert shown.splitlines()[-1].endswith("nothing to do.")
    assert {path: path.stat().st_mtime_ns for path in place.folder.rglob("*") if path.is_file()} == before


def test_a_damaged_wheelhouse_is_filled_again_without_a_compile(copy: Place) -> None:
    whole = {path.name: path.read_bytes() for path in copy.house.glob("*.whl")}
    name = sorted(whole)[0]
    (copy.house / name).write_bytes(whole[name].replace(b"cuda", b"CUDA", 1))
    (copy.house / name.replace("1.0", "0.9")).write_bytes(whole[name])
    shown = copy.make()
    assert f"{name} does not have the size and sha256 of its line" in shown
    assert f"{name.replace('1.0', '0.9')} is not of the set" in shown
    assert "compiling" not in shown
    assert {path.name: path.read_bytes() for path in copy.house.glob("*.whl")} == whole


def test_a_damaged_cache_is_not_passed_on(copy: Place) -> None:
    wheel = next(copy.entry("cuda-dot").glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    (copy.house / manifest.NAME).write_text("<!DOCTYPE html>\n")
    assert f"remove {wheel.parent}" in copy.make(ok=(22,))
    assert not (copy.house / manifest.NAME).exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_stopped_run_goes_on_with_the_wheel_that_was_missing(copy: Place, number: signal.Signals) -> None:
    shutil.rmtree(copy.entry("cuda-dot"))
    (copy.house / manifest.NAME).unlink()
    process = command.start(WHEELS, cwd=ROOT, env=copy.env(), stdout=subprocess.DEVNULL)
    wait(lambda: "nvcc" in compiling(copy))
    os.kill(process.pid, number)
    _, shown = process.communicate(timeout=60)
    wait(lambda: not compiling(copy))
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert ("goes on with what is missing" in shown.decode()) == (number == signal.SIGINT)
    # The compilers ended with it: none went on by itself.
    assert not list((copy.cache / preflight.WORK).rglob("*.so"))
    assert not (copy.house / manifest.NAME).exists()
    assert not list(copy.cache.glob("wheel-cuda-dot-*"))
    shown = copy.make()
    assert "compiling cuda-dot" in shown
    assert "compiling cuda-axpy" not in shown
    assert manifest.read(copy.house)


def test_a_wheel_for_other_gpus_or_with_an_undefined_symbol_is_refused(
    first: tuple[Place, str], tmp_path: Path
) -> None:
    place, _ = first
    tools = environments.tools(place.cache)
    target = sets.target(sets.load("small"))
    target.values["TORCH_CUDA_ARCH_LIST"] = "8.0;9.0"
    wheel = target.wheel_set.wheels[0]
    with pytest.raises(WheelsRefused, match=r"GPU code for 8.0;9.0;10.0, not for 8.0;9.0\."):
        check.check(check.only_wheel(place.house, wheel), wheel, target, tools, None)
    module, source = tmp_path / "cuda_axpy.so", tmp_path / "cuda_axpy.c"
    source.write_text(
        "extern int c10_of_another_torch(void); int PyInit_x(void) { return c10_of_another_torch(); }"
    )
    command.run(["gcc", "-shared", "-fPIC", "-o", module, source], timeout=60)
    with pytest.raises(WheelsRefused, match=r"(?s)cuda_axpy.so does not load.*undefined symbol: c10_of"):
        check.loaded([module], wheel, Path(sys.executable))


def test_the_production_set_is_refused_with_numbers_before_anything_is_fetched(
    first: tuple[Place, str], tmp_path: Path
) -> None:
    home = environments.packaged_toolkit(next(first[0].cache.glob("wheel-environment-small-*/environment")))
    shown = Place(tmp_path).make(
        "--set", "gpu-rl", ok=(5,), CUDA_HOME=str(home), MAX_JOBS="100", NVCC_THREADS="2"
    )
    assert "memory (needed 1306.5 GB, found " in shown
    assert "nvcc (needed 12.9, found 13.0 in " in shown
    assert not (tmp_path / "cache").exists()
    other = "arm64" if os.uname().machine == "x86_64" else "amd64"
    shown = Place(tmp_path).make("--architecture", other, ok=(5,))
    assert "architecture (needed linux_" in shown


def test_a_source_of_another_place_is_taken_at_its_commit_and_kept_when_it_was_begun(
    first: tuple[Place, str], checkout: Path, tmp_path: Path
) -> None:
    (checkout / "pyproject.toml").write_text('[project]\nname = "far"\nversion = "1"\n')
    (checkout / "far.py").write_text("")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "two")
    python = next(first[0].cache.glob("wheel-environment-small-*/environment/bin/python"))
    env = {"PYTHON": str(python), "CUDA_HOME": "/nowhere", "REPO": f"file://{checkout}"}
    script, work = [ROOT / "docker/build_wheels.sh", "far"], tmp_path / "work"
    branch = command.run([*script, work], timeout=60, env={**env, "COMMIT": "main"}, ok=(2,))
    assert "'main' for file://" in branch.stderr
    env["COMMIT"] = git(checkout, "rev-parse", "HEAD")
    command.run([*script, work], timeout=60, env=env)
    (work / "source/object.o").touch()
    command.run([*script, work], timeout=60, env=env)
    assert (work / "source/object.o").exists()
    assert [path.name for path in (work / "out").iterdir()] == ["far-1-py3-none-any.whl"]


def stand_in(folder: Path, script: str) -> str:
    """A PATH on which docker is that script."""
    folder.mkdir()
    (folder / "docker").write_text(script)
    (folder / "docker").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_docker_builds_the_stage_of_the_wheels_and_they_are_checked(
    first: tuple[Place, str], tmp_path: Path
) -> None:
    compiled, place, seen = first[0], Place(tmp_path / "place"), tmp_path / "seen"
    link_environments(compiled, place)
    shown = place.make(
        "--engine=docker",
        PATH=stand_in(tmp_path / "bin", DOCKER),
        SEEN=str(seen),
        EXPORTED=str(compiled.house),
        NVCC_THREADS="3",
    )
    assert "GPU code for 8.0;9.0;10.0" in shown
    assert (place.house / manifest.NAME).read_bytes() == (compiled.house / manifest.NAME).read_bytes()
    platform = "linux/amd64" if os.uname().machine == "x86_64" else "linux/arm64"
    words = seen.read_text().splitlines()
    assert {"--target=wheel-builder", f"--platform={platform}", "--build-arg=NVCC_THREADS=3"} <= set(words)


def test_a_docker_that_fails_is_not_replaced_by_this_machine(tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    path = stand_in(tmp_path / "bin", "#!/bin/sh\necho no daemon >&2\nexit 1\n")
    shown = place.make("--engine=docker", PATH=path, ok=(6,))
    assert "no daemon" in shown
    assert not list(place.cache.glob("wheel-*"))


def compiling(place: Place) -> str:
    """The commands that work on this place's wheels now."""
    work = str(place.cache / preflight.WORK).encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line, cwd = (process / "cmdline").read_bytes(), bytes((process / "cwd").readlink())
        except OSError:  # it ended meanwhile
            continue
        if work in line or work in cwd:
            found.append(line.replace(b"\0", b" ").decode())
    return "\n".join(found)


def wait(happened: Callable[[], object]) -> None:
    """Wait until it is so; the limit is for a machine that hangs."""
    for _ in range(1200):
        if happened():
            return
        time.sleep(0.05)
    raise AssertionError("waited a minute")
