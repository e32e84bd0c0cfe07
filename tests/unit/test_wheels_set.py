"""Wheel sets: the key and its file, the arithmetic of the machine, and damaged wheels."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest

from scripts import command
from scripts.errors import ConfigurationError, InputError, WheelsRefused
from scripts.pins import dockerfile
from scripts.wheels import check, manifest, objects, preflight, rehearse, sets
from scripts.wheels.manifest import Entry, Manifest
from scripts.wheels.preflight import Jobs

ROOT = Path(__file__).resolve().parents[2]
GB = 1_000_000_000
EARLIER = """\
VLLM_FORK_COMMIT=76259c63a45e57c0d1cbaca3480aae52ebbfccd1
FLASH_ATTN_VERSION=2.8.3
TORCH_VERSION=2.11.0
TORCH_CUDA_ARCH_LIST=8.0;9.0
CUDA=12.8 PY=cp312 PLATFORM=linux_x86_64
"""
"""As sets that were published before have it: the key alone."""


# --- the key and MANIFEST ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("8.0;9.0;10.0", "8.0;9.0;10.0"),
        ('"10.0 8.0,9.0"', "8.0;9.0;10.0"),
        ("9.0a; 9.0 ;9.0", "9.0;9.0a"),
        ("8.0 9.0+ptx\r", "8.0;9.0+PTX"),
    ],
)
def test_an_arch_list_means_the_same_in_any_spelling(written: str, read: str) -> None:
    assert manifest.normalised("TORCH_CUDA_ARCH_LIST", written) == read


def test_a_manifest_is_read_in_any_spelling_and_written_in_one() -> None:
    sets_key = sets.load("gpu-rl").key
    spelled = EARLIER.replace("8.0;9.0", '"9.0 8.0"').replace("\n", "\r\n").splitlines(keepends=True)
    found = manifest.parse("".join(reversed(spelled)))
    assert manifest.text(found, sets_key) == EARLIER


def test_what_is_written_is_read_again_and_every_difference_is_named() -> None:
    wheels = (
        Entry("a-1+g0f.cu129-x.whl", "a" * 64, 5),
        Entry("b-1-x.whl", "b" * 64, 7, "manylinux_2_34_x86_64"),
    )
    made = Manifest({"TORCH_CUDA_ARCH_LIST": "8.0;9.0", "CUDA": "12.9"}, wheels)
    assert manifest.parse(manifest.text(made, [["TORCH_CUDA_ARCH_LIST"], ["CUDA"]])) == made
    wanted = {"TORCH_CUDA_ARCH_LIST": "8.0;9.0;10.0", "CUDA": "12.9"}
    assert manifest.differences(wanted, made.key) == [
        "TORCH_CUDA_ARCH_LIST: wanted 8.0;9.0;10.0, found 8.0;9.0"
    ]


@pytest.mark.parametrize(
    "line", ["just words", "WHEEL=a.whl SHA256=abc SIZE=1", f"WHEEL=a.whl SHA256={'a' * 64}"]
)
def test_a_damaged_manifest_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(WheelsRefused, match="Line 6"):
        manifest.parse(EARLIER + line)


def test_a_folder_holds_exactly_the_wheels_of_its_manifest(tmp_path: Path) -> None:
    for name in ("a-1-x.whl", "b-1-x.whl"):
        (tmp_path / name).write_text(name)
    made = Manifest({}, tuple(manifest.entry(path) for path in sorted(tmp_path.iterdir())))
    manifest.write(tmp_path, made, [])
    assert manifest.faults(tmp_path, made) == []
    (tmp_path / "a-1-x.whl").write_text("A-1-x.whl")
    (tmp_path / "b-1-x.whl").rename(tmp_path / "b-2-x.whl")
    (tmp_path / manifest.SUMS).write_text("")
    assert [fault.partition(" ")[0] for fault in manifest.faults(tmp_path, made)] == [
        "SHA256SUMS",
        "b-1-x.whl",
        "b-2-x.whl",
        "a-1-x.whl",
    ]


def test_the_key_of_the_production_set_is_what_the_build_expects(tmp_path: Path) -> None:
    target = sets.target(sets.load("gpu-rl"))
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {target.key['PY']}\n")
    python.chmod(0o755)
    env = dockerfile.pins((ROOT / "docker/Dockerfile.gpu-rl").read_text())
    expected = command.output([ROOT / "docker/steps/wheel-manifest.sh", python], env=env)
    assert manifest.key_text(target.key, target.wheel_set.key).strip() == expected


# --- sets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [*(sets.target(sets.load(name)) for name in sets.names()), rehearse.target()],
    ids=lambda target: target.wheel_set.name,
)
def test_a_set_compiles_with_the_cuda_of_its_pins(target: sets.Target) -> None:
    commits = [target.values[wheel.commit] for wheel in target.wheel_set.wheels if wheel.commit]
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in commits)
    if target.wheel_set.requirements:
        nvcc = re.search(
            r"^nvidia-cuda-nvcc==(\d+\.\d+)", (ROOT / target.wheel_set.requirements).read_text(), re.M
        )
        assert nvcc
        assert nvcc[1] == target.key["CUDA"]


def test_the_rehearsal_compiles_the_pinned_flash_attn_with_the_pinned_torch() -> None:
    target = rehearse.target()
    torch, source = target.values["TORCH_VERSION"], target.values["FLASH_ATTN_VERSION"]
    assert re.search(rf"^torch=={re.escape(torch)} ", rehearse.REQUIREMENTS.read_text(), re.M)
    assert rehearse.SOURCE.read_text().startswith(f"flash-attn=={source} ")


def test_a_set_that_cannot_be_is_refused_with_its_file(tmp_path: Path) -> None:
    folder = tmp_path / sets.FOLDER
    folder.mkdir(parents=True)
    text = (ROOT / sets.FOLDER / "small.toml").read_text()
    (folder / "typo.toml").write_text(text.replace("memory =", "memroy ="))
    (folder / "pins.toml").write_text(text.replace('"CUDA_INDEX"', '"CUDA_INDICES"'))
    (tmp_path / "docker/wheel-sets/small").mkdir()
    (tmp_path / "docker/wheel-sets/small/Dockerfile").write_text("ARG CUDA_INDEX=cu130\n")
    with pytest.raises(ConfigurationError, match=r"typo.toml.*memroy"):
        sets.load("typo", tmp_path)
    with pytest.raises(ConfigurationError, match=r"CUDA_INDICES.*pins.toml"):
        sets.target(sets.load("pins", tmp_path), root=tmp_path)
    with pytest.raises(InputError, match="nothing"):
        sets.load("nothing", tmp_path)


# --- the machine ------------------------------------------------------------------------------------


def machine(folder: Path, cgroup: str, limits: dict[str, str]) -> Path:
    """A root with 64 GB of memory, the cgroup of this process, and the limits in its files."""
    files = {"proc/meminfo": "MemTotal:       62500000 kB\n", "proc/self/cgroup": cgroup}
    for name, text in {**files, **{f"sys/fs/cgroup/{name}": text for name, text in limits.items()}}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("cgroup", "limits", "found"),
    [
        ("0::/\n", {}, 64 * GB),
        ("0::/pod/task\n", {"pod/task/memory.max": "max\n", "pod/memory.max": "8000000000\n"}, 8 * GB),
        ("0::/../outside\n", {"memory.max": "7000000000\n"}, 7 * GB),
        ("5:cpu,cpuacct:/p\n4:memory:/p\n", {"memory/p/memory.limit_in_bytes": "6000000000\n"}, 6 * GB),
        ("4:memory:/p\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 64 * GB),
        ("0::/\n", {"memory.max": "99000000000\n"}, 64 * GB),
    ],
    ids=["no limit", "v2, of the pod", "v2, in a container", "v1", "v1, no limit", "more than there is"],
)
def test_memory_is_what_the_cgroup_leaves(
    tmp_path: Path, cgroup: str, limits: dict[str, str], found: int
) -> None:
    assert preflight.memory(machine(tmp_path, cgroup, limits)) == found


@pytest.mark.parametrize(
    ("cores", "memory", "architectures", "env", "jobs"),
    [
        (16, 256 * GB, 3, {}, Jobs(8, 2)),
        (64, 64 * GB, 3, {}, Jobs(5, 2)),  # memory decides
        (2, 24 * GB, 3, {}, Jobs(1, 2)),
        (1, 2 * GB, 1, {}, Jobs(1, 1)),
        (96, 850 * GB, 6, {"NVCC_THREADS": "4"}, Jobs(24, 4)),
        (2, 24 * GB, 3, {"MAX_JOBS": "8"}, Jobs(8, 2)),
    ],
)
def test_jobs_follow_from_cores_and_memory(
    cores: int, memory: int, architectures: int, env: dict[str, str], jobs: Jobs
) -> None:
    assert preflight.jobs(cores, memory, 5 * GB, architectures, env) == jobs


def test_every_thread_counts() -> None:
    assert preflight.needed(Jobs(8, 2), 5 * GB) == 85 * GB


def test_a_number_of_jobs_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="MAX_JOBS is 'all'"):
        preflight.jobs(2, GB, GB, 1, {"MAX_JOBS": "all"})


def test_a_compiler_that_is_too_new_for_nvcc_is_found(tmp_path: Path) -> None:
    header = tmp_path / "include/crt/host_config.h"
    header.parent.mkdir(parents=True)
    header.write_text("#if __GNUC__ > 4\n#error -- unsupported GNU version!\n")
    finding = preflight.compiler(tmp_path)
    assert (finding.needed, finding.fits) == ("at most 4", False)


# --- progress ---------------------------------------------------------------------------------------


def test_the_count_of_objects_is_shown_and_everything_is_kept() -> None:
    log, told = io.StringIO(), list[str]()
    reader = objects.Objects(log, told.append)
    for line in ("-- Configuring done", "  [1/4] c++ -c a.cpp", "[2/40] nvcc -c b.cu", "error: [3/4]"):
        reader.line(line)
    assert [line.partition(",")[0] for line in told] == ["1 of about 4 objects", "2 of about 40 objects"]
    assert len(log.getvalue().splitlines()) == 4


def test_the_estimate_is_of_the_rest() -> None:
    assert objects.progress(25, 100, 1200) == "25 of about 100 objects, 0:20:00 gone, about 1:00:00 to go"


# --- wheels -----------------------------------------------------------------------------------------

WHEEL = sets.Wheel("cuda-dot", ("cuda_dot",), source="x")
NAME = "cuda_dot-1.0-cp312-cp312-linux_x86_64.whl"
TARGET = sets.target(sets.load("small"), "x86_64")


def wheel(folder: Path, name: str = NAME, **changes: str) -> Path:
    """A wheel with one module; changes: of the name or version in METADATA, the tag, the module's path."""
    fields = {"project": "cuda-dot", "version": "1.0", "tag": "cp312-cp312-linux_x86_64"}
    fields |= {"module": "cuda_dot.cpython-312-x86_64-linux-gnu.so"} | changes
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr(fields["module"], "not really compiled " * 9)
        about = f"Metadata-Version: 2.1\nName: {fields['project']}\nVersion: {fields['version']}\n"
        archive.writestr("cuda_dot-1.0.dist-info/METADATA", about)
        archive.writestr("cuda_dot-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {fields['tag']}\n")
    return folder / name


def look(path: Path) -> list[Path]:
    """The checks that read the archive."""
    version = check.named(path, WHEEL, TARGET)
    return check.unpacked(path, WHEEL, version, path.parent / "unpacked")


def test_a_whole_wheel_gives_its_modules(tmp_path: Path) -> None:
    assert [path.name for path in look(wheel(tmp_path))] == ["cuda_dot.cpython-312-x86_64-linux-gnu.so"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("cuda_dot.whl", "not a wheel's name"),
        (NAME.replace("dot", "axpy"), "a wheel of cuda-axpy"),
        (NAME.replace("cp312", "cp311"), "not for cp312"),
        (NAME.replace("x86_64", "aarch64"), "not for cp312 on linux_x86_64"),
        (NAME.replace("linux", "win"), "not for cp312"),
        (NAME.replace("cp312-cp312", "cp313-abi3"), "not for cp312"),
    ],
)
def test_a_name_that_is_not_the_pins_is_refused(tmp_path: Path, name: str, complaint: str) -> None:
    with pytest.raises(WheelsRefused, match=complaint):
        look(tmp_path / name)


@pytest.mark.parametrize(
    "name", [NAME.replace("cp312-cp312", "cp38-abi3"), NAME.replace("linux", "manylinux_2_34")]
)
def test_stable_and_portable_wheels_fit_too(name: str) -> None:
    assert check.named(Path(name), WHEEL, TARGET) == "1.0"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"project": "cuda-axpy"}, "is cuda-axpy 1.0 inside"),
        ({"version": "1.1"}, "is cuda-dot 1.1 inside"),
        ({"tag": "py3-none-any"}, "has the tags py3-none-any inside"),
        ({"module": "cuda_dot.py"}, "lacks the extension cuda_dot"),
        ({"module": "cuda_dots.so"}, "lacks the extension cuda_dot"),
    ],
)
def test_a_wheel_that_is_another_inside_is_refused(
    tmp_path: Path, changes: dict[str, str], complaint: str
) -> None:
    with pytest.raises(WheelsRefused, match=complaint):
        look(wheel(tmp_path, **changes))


@pytest.mark.parametrize("damage", ["flipped", "cut", "page"])
def test_a_damaged_wheel_is_refused(tmp_path: Path, damage: str) -> None:
    path = wheel(tmp_path)
    whole = path.read_bytes()
    at = whole.index(b"really")
    path.write_bytes(
        {
            "flipped": whole[:at] + b"R" + whole[at + 1 :],
            "cut": whole[: len(whole) // 2],
            "page": b"<!DOCTYPE html><title>Not found</title>",
        }[damage]
    )
    with pytest.raises(WheelsRefused, match="is damaged"):
        look(path)


def test_two_wheels_of_one_project_are_refused(tmp_path: Path) -> None:
    wheel(tmp_path)
    assert check.only_wheel(tmp_path, WHEEL).name == NAME
    wheel(tmp_path, NAME.replace("1.0", "1.1"))
    with pytest.raises(WheelsRefused, match="2 wheels of cuda-dot"):
        check.only_wheel(tmp_path, WHEEL)


@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        ("0.1.dev16611+g8672c71e3.cu129", ""),
        ("0.1.dev16611+g8672c71e3.d20260625.cu129", ""),
        ("0.1.dev16611+g76259c63a.cu129", "does not say that it is from commit 8672c71"),
        ("0.23.1", "does not say that it is from commit 8672c71"),
    ],
)
def test_vllm_says_the_commit_it_is_from(version: str, complaint: str) -> None:
    target = sets.target(sets.load("gpu-rl"), "x86_64")
    vllm = next(wheel for wheel in target.wheel_set.wheels if wheel.name == "vllm")
    path = Path(f"vllm-{version}-cp312-cp312-linux_x86_64.whl")
    if complaint:
        with pytest.raises(WheelsRefused, match=complaint):
            check.named(path, vllm, target)
    else:
        assert check.named(path, vllm, target) == version
        assert bool(check.remarks(version)) == ("d2026" in version)


@pytest.mark.parametrize(
    ("found", "arch_list", "fits"),
    [
        (["8.0", "9.0"], "8.0;9.0", True),
        (["8.0", "8.0+PTX", "9.0"], "8.0;9.0a", True),
        (["8.0", "9.0"], "8.0;9.0;10.0", False),
        (["8.0", "9.0", "10.0"], "8.0;9.0", False),
        (["8.0", "9.0"], "8.0;9.0+PTX", False),
        ([], "8.0", False),
    ],
)
def test_gpu_code_is_for_the_arch_list(found: list[str], arch_list: str, fits: bool) -> None:
    if fits:
        check.same_architectures("x.whl", found, arch_list)
    else:
        with pytest.raises(WheelsRefused, match=re.escape(f"not for {arch_list}")):
            check.same_architectures("x.whl", found, arch_list)
