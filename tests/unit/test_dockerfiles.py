"""The Dockerfiles and their steps: what a builder would get wrong without a word, and what would drift."""

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

DOCKER = Path(__file__).parents[2] / "docker"
NAMES = ["Dockerfile.gpu-rl", "Dockerfile.tpu"]
# Not part of what the image is: its revision has a label of its own, the others are speed.
NO_PINS = {"GITSHA", "MAX_JOBS", "NVCC_THREADS"}

both = pytest.mark.parametrize("name", NAMES)


def instructions(name: str) -> list[str]:
    """The instructions of a Dockerfile, one a line, without comments."""
    lines = (DOCKER / name).read_text().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    return [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]


def stages(name: str) -> list[list[str]]:
    """The instructions before the first FROM, then those of each stage."""
    groups: list[list[str]] = [[]]
    for line in instructions(name):
        if line.startswith("FROM "):
            groups.append([])
        groups[-1].append(line)
    return groups


def declared(lines: list[str]) -> dict[str, str]:
    """The ARGs among these instructions and their values; empty for one without a value."""
    args = [line.removeprefix("ARG ") for line in lines if line.startswith("ARG ")]
    return {arg.partition("=")[0]: arg.partition("=")[2] for arg in args}


def taken_from_the_environment(script: str) -> set[str]:
    """The pins that a step reads, itself or through the steps that it calls."""
    text = (DOCKER / "steps" / script).read_text()
    called = set(re.findall(r"/([a-z-]+\.sh)\"", text))
    own = set(re.findall(r"\$([A-Z_]+)\b", text)) - {"PATH"}
    return own.union(*(taken_from_the_environment(other) for other in called))


def pins(name: str) -> set[str]:
    return declared(stages(name)[0]).keys() - NO_PINS


@both
def test_every_pin_is_declared_once_with_a_value_and_restated_without(name: str) -> None:
    outer, *inner = stages(name)
    assert all(declared(outer).values())
    restated = [(arg, value) for stage in inner for arg, value in declared(stage).items()]
    assert {arg for arg, value in restated if value} == {"GITSHA"}
    assert {arg for arg, _ in restated} - {"GITSHA"} <= declared(outer).keys()


@both
def test_every_value_that_an_instruction_uses_is_known_in_its_stage(name: str) -> None:
    for stage in stages(name)[1:]:
        known: set[str] = set()
        for line in stage[1:]:
            used = set(re.findall(r"\$\{([A-Z_0-9]+)\}", line)) - {"PATH"}
            assert used <= known, line
            known |= declared([line]).keys()
        for script in set(re.findall(r"/steps/([a-z-]+\.sh)", "\n".join(stage))):
            assert taken_from_the_environment(script) <= known, script


@both
def test_sources_are_pinned_by_a_full_commit_and_packages_by_a_version(name: str) -> None:
    for arg, value in declared(stages(name)[0]).items():
        if arg.endswith("_COMMIT"):
            assert re.fullmatch(r"[0-9a-f]{40}", value), arg
        if arg.endswith("_REPO"):
            assert f"{arg.removesuffix('_REPO')}_COMMIT" in pins(name)
        if arg.endswith("_VERSION"):
            assert re.fullmatch(r"\d+(\.\d+)+", value), arg
    requirements = (DOCKER / "steps/wheel-build-requirements.txt").read_text().splitlines()
    assert all("==" in line for line in requirements if not line.startswith("#"))


@both
def test_every_pin_has_a_label_and_is_baked_for_the_asserts(name: str) -> None:
    final = stages(name)[-1]
    (labels,) = (line for line in final if line.startswith("LABEL "))
    for pin in pins(name):
        assert f'org.iris-images.pin.{pin.lower().replace("_", "-")}="${{{pin}}}"' in labels
    assert len(re.findall(r"org\.iris-images\.pin\.", labels)) == len(pins(name))
    (baked,) = (line for line in final if "write-pins.sh" in line)
    assert set(re.findall(r"\b[A-Z_0-9]{4,}\b", baked)) == pins(name)


@both
def test_the_asserts_are_the_last_run_and_only_then_comes_the_revision(name: str) -> None:
    final = stages(name)[-1]
    runs = [line for line in final if line.startswith("RUN ")]
    assert runs[-1].endswith("/bin/python /opt/iris-images/asserts.py")
    assert final.index("ARG GITSHA=unknown") > final.index(runs[-1])


@both
def test_nothing_that_an_executor_builds_wrong_in_silence(name: str) -> None:
    text = "\n".join(instructions(name))
    assert "<<" not in text
    assert "--mount" not in text
    assert not re.search(r"--from=\d", text)
    assert not re.search(r"TOKEN|PASSWORD|SECRET", text)


@both
def test_no_package_index_is_named(name: str) -> None:
    addresses = re.findall(r"https?://([^/\s\"]+)", (DOCKER / name).read_text())
    assert set(addresses) <= {"github.com"}


def test_every_layer_of_the_locked_environment_has_its_run() -> None:
    lines = (DOCKER / "steps/rl-layers.txt").read_text().splitlines()
    layers = [line.split() for line in lines if not line.startswith("#")]
    names = [name for layer in layers for name in layer]
    assert len(names) == len(set(names))
    runtime = "\n".join(stages("Dockerfile.gpu-rl")[-1])
    seen = re.findall(r"sync-locked\.sh /opt/skyrl (\d+)", runtime)
    assert seen == [str(layer) for layer in range(len(layers) + 1)]


def step(name: str, *words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run one of the build's steps as a RUN would, without the rest of this process's environment."""
    argv = [str(DOCKER / "steps" / name), *words]
    return subprocess.run(argv, cwd=cwd, env={"PATH": "/usr/bin:/bin", **env}, capture_output=True, text=True)


def fake_uv(folder: Path) -> str:
    """A PATH with a `uv` that prints its arguments."""
    program = folder / "uv"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def test_a_layer_leaves_out_what_later_layers_bring_and_always_what_we_compile(tmp_path: Path) -> None:
    path = fake_uv(tmp_path)
    first = step("sync-locked.sh", "/p", "0", "fsdp", cwd=tmp_path, PATH=path).stdout
    second = step("sync-locked.sh", "/p", "2", "fsdp", cwd=tmp_path, PATH=path).stdout
    last = step("sync-locked.sh", "/p", "9", "megatron", cwd=tmp_path, PATH=path).stdout
    assert "--no-install-package nvidia-cudnn-cu12" in first
    assert "nvidia-cudnn-cu12" not in second
    assert "--no-install-package nvidia-cublas-cu12" in second
    assert "--extra megatron --no-install-package vllm --no-install-package flash-attn" in last
    assert last.count("--no-install-package") == 3
    assert all("sync --frozen --no-cache" in line for line in (first, second, last))


PINS = {
    "VLLM_FORK_COMMIT": "a" * 40,
    "FLASH_ATTN_VERSION": "2.8.3",
    "TORCH_VERSION": "2.11.0",
    "TORCH_CUDA_ARCH_LIST": "8.0;9.0",
    "CUDA_INDEX": "cu129",
}


def wheel_set(folder: Path) -> Path:
    """A whole wheel set for PINS: the wheels' content does not matter to the check."""
    folder.mkdir()
    (folder / "vllm-0.1-py3-none-any.whl").write_bytes(b"vllm")
    (folder / "flash_attn-2.8.3-py3-none-any.whl").write_bytes(b"flash")
    (folder / "MANIFEST").write_text(step("wheel-manifest.sh", "python3", cwd=folder, **PINS).stdout)
    sums = [f"{hashlib.sha256(w.read_bytes()).hexdigest()}  {w.name}\n" for w in folder.glob("*.whl")]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return folder


def test_the_manifest_is_five_lines_derived_from_the_pins(tmp_path: Path) -> None:
    lines = (wheel_set(tmp_path / "wheels") / "MANIFEST").read_text().splitlines()
    assert lines[:4] == [f"{name}={value}" for name, value in list(PINS.items())[:4]]
    assert re.fullmatch(r"CUDA=12\.9 PY=cp3\d+ PLATFORM=linux_(x86_64|aarch64)", lines[4])
    assert len(lines) == 5


def test_a_whole_wheel_set_for_these_pins_passes(tmp_path: Path) -> None:
    result = step("check-wheels.sh", "python3", str(wheel_set(tmp_path / "wheels")), cwd=tmp_path, **PINS)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("pin", PINS)
def test_a_wheel_set_for_another_pin_is_refused(tmp_path: Path, pin: str) -> None:
    folder = wheel_set(tmp_path / "wheels")
    other = {**PINS, pin: "cu130" if pin == "CUDA_INDEX" else "other"}
    result = step("check-wheels.sh", "python3", str(folder), cwd=tmp_path, **other)
    assert result.returncode == 1
    assert "made for other pins" in result.stderr


@pytest.mark.parametrize("damage", ["changed", "missing", "doubled", "unlisted"])
def test_a_damaged_wheel_set_is_refused(tmp_path: Path, damage: str) -> None:
    folder = wheel_set(tmp_path / "wheels")
    wheel = folder / "vllm-0.1-py3-none-any.whl"
    if damage == "changed":
        wheel.write_bytes(b"other")
    if damage == "missing":
        wheel.unlink()
    if damage == "doubled":
        (folder / "vllm-0.2-py3-none-any.whl").write_bytes(b"vllm")
    if damage == "unlisted":
        sums = folder / "SHA256SUMS"
        sums.write_text("".join(line for line in sums.open() if "vllm" not in line))
    result = step("check-wheels.sh", "python3", str(folder), cwd=tmp_path, **PINS)
    assert result.returncode == 1


@pytest.mark.parametrize("commit", ["main", "8672c71e", "A" * 40, "a" * 41])
def test_a_source_is_fetched_by_a_full_commit_only(tmp_path: Path, commit: str) -> None:
    result = step("fetch-commit.sh", "https://127.0.0.1:9/x", commit, str(tmp_path / "x"), cwd=tmp_path)
    assert result.returncode == 2
    assert "not a full commit" in result.stderr
