"""The build script's own fetch of a published set, through a proxy that injects faults."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts import command
from scripts.errors import WheelsRefused
from scripts.registry import crane, reference
from scripts.registry.reference import Reference
from scripts.wheels import manifest, store
from scripts.wheels.manifest import Manifest
from tests.local.faulty_proxy import Fault, Proxy, faulty

ROOT = Path(__file__).resolve().parents[2]
KEY = {"TORCH_CUDA_ARCH_LIST": "8.0;9.0;10.0", "CUDA": "12.9", "PY": "cp312", "PLATFORM": "linux_x86_64"}
LINES = [["TORCH_CUDA_ARCH_LIST"], ["CUDA", "PY", "PLATFORM"]]
RANGE = 1 << 16
BIG = 6 * RANGE + 100
SOURCED = r"""
set -Eeuo pipefail
source <(sed "/^main /d; s|^source .*|source '$ROOT/docker/kaniko.sh'|" "$ROOT/docker/build_gpu_rl_kaniko.sh")
finish() { say "result=$2 code=$1: $3"; exit "$1"; }
RANGE=$SMALL
"""
"""The functions of the build script, with a range that suits small wheels."""
HARNESS = (
    SOURCED
    + r"""
IMAGE_REPOSITORY=${1%%/wheels*} REGISTRY_USER=someone TOKEN=made-up
exec 8<"$CRANE"
fetch_set "$1" "$2" || finish 22 wheels-refused "$1 could not be fetched"
"""
)


def wheelhouse(folder: Path, key: dict[str, str] = KEY, size: int = BIG) -> Path:
    """A set of two files that begin like wheels, one of them of several ranges."""
    folder.mkdir(parents=True)
    noise = b"".join(hashlib.sha256(f"{number}".encode()).digest() for number in range(size // 32 + 1))
    (folder / "vllm-0.1.dev1+g76259c63a.cu129-cp312-cp312-linux_x86_64.whl").write_bytes(
        b"PK\3\4" + noise[:size]
    )
    (folder / "flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl").write_bytes(b"PK\3\4small")
    wheels = tuple(manifest.entry(path) for path in sorted(folder.glob("*.whl")))
    manifest.write(folder, Manifest(key, wheels), LINES)
    return folder


def pushed(house: Path, where: str) -> Reference:
    """The set in a registry, under its tag."""
    found = manifest.read(house)
    assert found
    tag = store.tag_of((house / manifest.NAME).read_bytes())
    return store.push(reference.parse(f"{where}:{tag}"), house, found, "amd64", None)


def fetched(
    what: Reference, port: int, folder: Path, ok: tuple[int, ...] = (0,), *, part: int = RANGE
) -> str:
    """Fetch through the proxy as the job does; what it said."""
    path = shutil.which("crane")
    assert path
    through = str(what).replace(what.host, f"127.0.0.1:{port}")
    env = {"CRANE": path, "ROOT": str(ROOT), "SMALL": str(part)}
    words = ["bash", "-c", HARNESS, "build", through, folder]
    return command.run(words, timeout=120, cwd=ROOT, env=env, ok=ok).stderr


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheelhouse(tmp_path_factory.mktemp("house") / "set")


@pytest.fixture(scope="module")
def published(host: str, house: Path) -> Reference:
    return pushed(house, f"{host}/team/image/wheels")


def big(published: Reference) -> str:
    """The digest of the layer that is fetched in several ranges."""
    layers = crane.manifest(published).data["layers"]
    return str(max(layers, key=lambda layer: layer["size"])["digest"])


def same(house: Path, folder: Path) -> bool:
    """Whether the folder holds the files of a wheelhouse, all of them and no other."""
    return {path.name: path.read_bytes() for path in house.iterdir()} == {
        path.name: path.read_bytes() for path in (folder / "wheels").iterdir()
    }


def first(fault: Fault, digest: str, times: int = 1) -> Callable[[str, str, str], Fault | int]:
    """That fault for the first requests of a blob."""
    left: Iterator[Fault] = iter([fault] * times)
    return lambda _, path, __: next(left, 0) if path.endswith(digest) else 0


FAULTS = {
    "nothing": Fault(),
    "a cut": Fault(cut_after=RANGE // 2),
    "a flipped byte": Fault(flip=RANGE // 3),
    "429 with a wait": Fault(status=429, headers={"Retry-After": "1"}),
    "416": Fault(status=416),
    "503": Fault(status=503),
    "a page of HTML with 200": Fault(status=200, body=b"<!DOCTYPE html><title>Log in</title>" * 9),
    "Range ignored": Fault(drop_range=True),
    "a login that has expired": Fault(status=401),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_on_the_way_costs_a_repetition_and_nothing_else(
    fault: Fault, published: Reference, house: Path, tmp_path: Path
) -> None:
    with faulty(int(published.host.split(":")[1]), first(fault, big(published))) as proxy:
        fetched(published, proxy.port, tmp_path / "set")
    assert same(house, tmp_path / "set")


def blob_requests(proxy: Proxy, digest: str) -> int:
    return sum(path.endswith(digest) for _, path, _ in proxy.requests)


def test_a_cut_is_repaired_without_what_came_before(
    published: Reference, house: Path, tmp_path: Path
) -> None:
    digest = big(published)
    with faulty(int(published.host.split(":")[1]), first(Fault(cut_after=10), digest)) as proxy:
        fetched(published, proxy.port, tmp_path / "set")
        assert proxy.sent < BIG + 2 * RANGE
        assert (
            blob_requests(proxy, digest) == 8
        )  # seven ranges, the tar's end in the last, and one of them again


def test_a_server_that_always_ignores_ranges_gives_the_whole(
    published: Reference, house: Path, tmp_path: Path
) -> None:
    with faulty(int(published.host.split(":")[1]), lambda *_: Fault(drop_range=True)) as proxy:
        fetched(published, proxy.port, tmp_path / "set")
    assert same(house, tmp_path / "set")


def test_what_an_earlier_try_left_is_not_taken(published: Reference, house: Path, tmp_path: Path) -> None:
    stale = tmp_path / "set.part/parts"
    stale.mkdir(parents=True)
    for number in range(9):
        (stale / str(number)).write_bytes(b"x" * RANGE)
    with faulty(int(published.host.split(":")[1]), lambda *_: 0) as proxy:
        fetched(published, proxy.port, tmp_path / "set")
    assert same(house, tmp_path / "set")


def test_bytes_that_stay_wrong_end_it(published: Reference, tmp_path: Path) -> None:
    digest = big(published)
    with faulty(
        int(published.host.split(":")[1]), lambda _, path, __: Fault(flip=99) if path.endswith(digest) else 0
    ) as proxy:
        said = fetched(published, proxy.port, tmp_path / "set", ok=(22,))
    assert f"{digest} came as sha256:" in said
    assert "attempt 3 of 3 failed" in said
    assert not list((tmp_path / "set").rglob("vllm-*"))


def test_a_damaged_set_is_named_wheel_by_wheel(host: str, tmp_path: Path) -> None:
    house = wheelhouse(tmp_path / "set")
    vllm, flash = (next(house.glob(f"{name}-*")) for name in ("vllm", "flash_attn"))
    vllm.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n")
    flash.write_bytes(b"PK\3\4Small")
    target = pushed(house, f"{host}/team/damaged/wheels")
    with pytest.raises(WheelsRefused) as refused:
        store.verified(target, None)
    assert f"{vllm.name} is a Git LFS pointer" in refused.value.what
    assert f"{flash.name} is another or a damaged wheel (9 bytes, sha256 " in refused.value.what


def test_a_tag_is_not_overwritten(host: str, house: Path, tmp_path: Path) -> None:
    where, tag = f"{host}/team/taken/wheels", store.tag_of((house / manifest.NAME).read_bytes())
    other = pushed(wheelhouse(tmp_path / "other", size=10), where)
    crane.ask(["tag", str(other), tag])
    with pytest.raises(WheelsRefused, match="holds something else"):
        pushed(house, where)
    with pytest.raises(WheelsRefused, match="not the wheel set that its tag names"):
        store.look(reference.parse(f"{where}:{tag}"), None)
    assert [one.tag for one in store.listed(reference.parse(f"{where}:x"), None)] == [
        store.tag_of((tmp_path / "other" / manifest.NAME).read_bytes())
    ]


def test_a_disk_that_is_too_small_is_told_before_the_first_byte(published: Reference, tmp_path: Path) -> None:
    with faulty(int(published.host.split(":")[1]), lambda *_: 0) as proxy:
        said = fetched(published, proxy.port, tmp_path / "set", ok=(22,), part=10**16)
        assert not any("/blobs/" in path for _, path, _ in proxy.requests)
    assert " bytes of disk, and " in said
