"""The small set on its whole way: compiled by nvcc, published, found, fetched by a build, asserted there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts.errors import IrisImagesError, WheelsRefused
from scripts.local import roots, sources
from scripts.pins import dockerfile
from scripts.registry import reference
from scripts.settings import LOCAL, Settings
from scripts.wheels import files, find, house, native, prune, publish, sets, store
from scripts.wheels.sets import Target
from tests.conftest import git
from tests.local.place import LABEL, ROOT, Place
from tests.local.test_wheel_fetch import KEY, pushed, wheelhouse

DOCKERFILE = """\
ARG BASE_IMAGE
{pins}
ARG SKYRL_REPO=
ARG SKYRL_COMMIT=
ARG FLASH_ATTN_REPO=
ARG FLASH_ATTN_COMMIT=
ARG VLLM_FORK_REPO=
ARG VLLM_FORK_COMMIT=
ARG TORCHTITAN_REPO=
ARG TORCHTITAN_COMMIT=
ARG HARBOR_REPO=
ARG HARBOR_COMMIT=
ARG WHEEL_SOURCE=prebuilt-wheelhouse
ARG INSTALL_MEGATRON=0
FROM scratch AS prebuilt-wheelhouse
COPY docker/wheelhouse/ /wheels/
FROM ${{WHEEL_SOURCE}} AS wheels
FROM ${{BASE_IMAGE}}
COPY --from=wheels /wheels/ /wheels/
RUN cd /wheels && sha256sum --check --strict SHA256SUMS && mkdir /site \\
    && for wheel in *.whl; do python3 -m zipfile -e "$wheel" /site; done
COPY assert.py /assert.py
RUN python3 /assert.py
"""
ASSERT = """\
import pathlib
import sys
manifest = pathlib.Path("/wheels/MANIFEST").read_text()
assert "TORCH_CUDA_ARCH_LIST=8.0;9.0;10.0" in manifest, manifest
sys.path.insert(0, "/site")
import cuda_axpy, cuda_dot
print("assert: the wheels of nvcc are here:", cuda_axpy.__file__)
"""


@pytest.fixture(scope="module")
def made(place: Place, cache: Path) -> Settings:
    """Settings of the session's servers, whose wheelhouse holds the small set, compiled by nvcc."""
    settings = Settings(LOCAL, cache, place.state, "iris", "", "", "", {})
    small = target(cache)
    house.fill(house.folder(settings, small), small, native.wheels(small, settings))
    return settings


def target(cache: Path) -> Target:
    """The small set for the Python of the local base image, which is another one than the set's own."""
    small = sets.target(sets.load("small"))
    version = sources.python_version(cache, roots.base_root(cache))
    small.values.update(PYTHON_VERSION=version, PY="cp" + version.replace(".", ""))
    return small


@pytest.fixture(scope="module")
def published(made: Settings) -> str:
    publish.publish(made, target(made.cache))
    (found,) = [one for one in store.listed(store.repository(made), None) if "SOURCES" in one.manifest.key]
    return str(found.reference)


def test_what_was_published_is_found_by_digest_and_listed(
    made: Settings, published: str, capsys: pytest.CaptureFixture[str]
) -> None:
    find.find(made, target(made.cache))
    assert capsys.readouterr().out == f"{published}\n"
    publish.publish(made, target(made.cache))  # the same set again is no second one
    assert capsys.readouterr().out == f"{published}\n"
    publish.show(made)
    shown = capsys.readouterr()
    assert published in shown.out.splitlines()
    assert "TORCH_CUDA_ARCH_LIST=8.0;9.0;10.0" in shown.err
    publish.verify(made, published)
    publish.verify(made, str(house.folder(made, target(made.cache))))


def test_a_build_fetches_it_installs_it_and_asserts_it(place: Place, published: str, tmp_path: Path) -> None:
    record, said = place.build(
        "gpurl", f"--context={small_context(tmp_path / 'one')}", INVOKE_WHEELS_GPU_RL=published
    )
    assert record["inputs"]["WHEELHOUSE"] == published
    assert "assert: the wheels of nvcc are here: /site/cuda_axpy." in place.log(record)
    other = small_context(tmp_path / "two", arch="8.0;9.0")
    _, said = place.build("gpurl", f"--context={other}", ok=(22,), INVOKE_WHEELS_GPU_RL=published)
    assert "wanted 'TORCH_CUDA_ARCH_LIST=8.0;9.0', found 'TORCH_CUDA_ARCH_LIST=8.0;9.0;10.0'" in said
    assert "phase=build" not in said
    cut = place.inv("build.gpurl", f"--context={other}", ok=(2,), INVOKE_WHEELS_GPU_RL=published[:-7])
    assert "a digest is sha256: and 64 hexadecimal digits" in cut.stderr


def small_context(folder: Path, arch: str = "8.0;9.0;10.0") -> Path:
    """A checkout whose gpu-rl takes the small set: its Dockerfile's ARGs are that set's key."""
    small = sets.target(sets.load("small"))
    own = dockerfile.pins((ROOT / small.wheel_set.dockerfile).read_text())
    values = {
        "SOURCES": small.values["SOURCES"],
        "CUDA_INDEX": own["CUDA_INDEX"],
        "TORCH_CUDA_ARCH_LIST": arch,
    }
    pins = "\n".join(f'ARG {name}="{value}"' for name, value in values.items())
    (folder / "docker/wheel-sets").mkdir(parents=True)
    shutil.copy(ROOT / "docker/images.toml", folder / "docker/images.toml")
    pins += f'\nARG PYTHON_VERSION="{own["PYTHON_VERSION"]}"'
    (folder / "docker/Dockerfile.gpu-rl").write_text(DOCKERFILE.format(pins=pins) + LABEL)
    text = (ROOT / "docker/wheel-sets/small.toml").read_text()
    text = text.replace(small.wheel_set.dockerfile, "docker/Dockerfile.gpu-rl")
    (folder / "docker/wheel-sets/gpu-rl.toml").write_text(text)
    (folder / "assert.py").write_text(ASSERT)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "a context")
    return folder


def test_a_near_miss_names_what_differs() -> None:
    found = {**KEY, "TORCH_CUDA_ARCH_LIST": "8.0;9.0"}
    assert find.differing(KEY, found) == ["TORCH_CUDA_ARCH_LIST 8.0;9.0, wanted 8.0;9.0;10.0"]
    renamed = {("ARCHS" if name == "TORCH_CUDA_ARCH_LIST" else name): value for name, value in KEY.items()}
    assert find.differing(KEY, renamed) == [
        "TORCH_CUDA_ARCH_LIST is named ARCHS there, and its value is the same"
    ]
    assert find.differing(KEY, {**KEY, "MORE": "1"}) == ["MORE 1, wanted nothing"]


def test_a_place_that_fsspec_reaches_holds_a_set_too(
    made: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"file://{tmp_path}/sets"
    publish.publish(made, target(made.cache), place)
    publish.publish(made, target(made.cache), place)
    address = capsys.readouterr().out.splitlines()[-1]
    publish.verify(made, address)
    wheel = next(Path(address.removeprefix("file://")).glob("cuda_dot-*.whl"))
    wheel.write_text("<!DOCTYPE html><title>Log in</title>")
    with pytest.raises(WheelsRefused, match=f"{wheel.name} is a page of HTML"):
        files.verified(address)
    with pytest.raises(IrisImagesError, match="nosuch:// needs a package that is not installed"):
        files.verified("nosuch://x/wheels-1")


def test_pruning_keeps_what_any_branch_or_tag_fits(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_USER", "someone")
    monkeypatch.setenv("REGISTRY_TOKEN", "made-up")
    repository = f"{host}/team/prune"
    where = reference.parse(f"{repository}/wheels")
    settings = Settings("far", tmp_path / "cache", tmp_path / "state", "iris", "", "", repository, {})
    kept, named, doomed = (
        pushed(wheelhouse(tmp_path / arch, {**KEY, "TORCH_CUDA_ARCH_LIST": arch}), f"{repository}/wheels")
        for arch in ("8.0", "8.6", "9.0")
    )
    context = tmp_path / "context"
    (context / "docker").mkdir(parents=True)
    git(context, "init", "--quiet", "--initial-branch=main")
    for branch, arch in (("old", "8.0"), ("main", "12.0")):
        lines = f"ARG TORCH_CUDA_ARCH_LIST={arch}\nARG CUDA_INDEX=cu129\nARG PYTHON_VERSION=3.12\n"
        (context / "docker/Dockerfile.gpu-rl").write_text(lines)
        git(context, "add", "--all")
        git(context, "commit", "--quiet", "--message", branch)
        git(context, "tag", f"release-{branch}")
    settings = Settings(**{**vars(settings), "wheels": {"gpu-rl": str(named)}})
    left = lambda: {one.reference.digest for one in store.listed(where, None)}  # noqa: E731
    prune.prune(settings, context)
    assert left() == {kept.digest, named.digest, doomed.digest}
    prune.prune(settings, context, yes=True)
    assert left() == {kept.digest, named.digest}
