"""Files out of images in a real registry: every packing of a layer, and what goes wrong on the way."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts import command
from scripts.errors import Absent, CommandTimeout, Damaged, IrisImagesError, RegistryError
from scripts.local import registry, services
from scripts.registry import blobs, files, image
from scripts.registry.files import Wanted
from scripts.registry.image import Layer
from scripts.registry.reference import Reference, parse
from tests.layers import Member, packed
from tests.local.faulty_proxy import Choose, Fault, Proxy, faulty
from tests.local.place import processes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

OCI, DOCKER = "application/vnd.oci.image.", "application/vnd.docker."
PLAIN, GZIP, ZSTD = (f"{OCI}layer.v1.tar{packing}" for packing in ("", "+gzip", "+zstd"))
LIMIT = 0.5


@dataclass(frozen=True)
class Local:
    """A registry, and the layers of one image in it, the lowest first; each holds /N and /both."""

    port: int
    layers: tuple[Layer, ...]

    def through(self, proxy: Proxy) -> Reference:
        return Reference(f"127.0.0.1:{proxy.port}", "some/image")


@pytest.fixture(scope="module")
def local(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    folder = tmp_path_factory.mktemp("registry")
    running = registry.up(cache, folder)
    reference = push(running.port, folder, [(GZIP, gzip.compress(content(number))) for number in range(4)])
    yield Local(running.port, layers_of(reference))
    services.down(folder, "registry")


def content(number: int) -> bytes:
    noise = Member("noise", text=os.urandom(100_000).hex())
    return packed([Member(f"{number}", text=f"in {number}"), Member("both", text=f"of {number}"), noise])


def push(
    port: int, folder: Path, layers: Sequence[tuple[str, bytes]], name: str = "some/image:1"
) -> Reference:
    """Push an OCI image with those layers, given as media type and bytes."""
    layout = folder / name.replace("/", "-").replace(":", "-")
    store = layout / "blobs" / "sha256"
    store.mkdir(parents=True)

    def add(media_type: str, data: bytes) -> dict[str, str | int]:
        digest = hashlib.sha256(data).hexdigest()
        (store / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": []},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}manifest.v1+json",
        "config": add(f"{OCI}config.v1+json", json.dumps(config).encode()),
        "layers": [add(media_type, data) for media_type, data in layers],
    }
    top = add(f"{OCI}manifest.v1+json", json.dumps(manifest).encode())
    index = {"schemaVersion": 2, "mediaType": f"{OCI}index.v1+json", "manifests": [top]}
    (layout / "index.json").write_text(json.dumps(index))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    command.output(["crane", "push", layout, f"127.0.0.1:{port}/{name}"])
    return parse(f"127.0.0.1:{port}/{name}")


def layers_of(reference: Reference) -> tuple[Layer, ...]:
    found = image.look(reference, "amd64").image
    assert found
    return found.layers


def blob_faults(fault: Fault, times: int = 1000) -> Choose:
    """The fault in so many requests for a blob."""
    left = iter([fault] * times)
    return lambda method, path, _: next(left, None) if method == "GET" and "/blobs/" in path else None


def fetched(proxy: Proxy) -> list[str]:
    """The digests of the blobs that were asked for, in order."""
    return [path.rpartition("/")[2] for _, path, _ in proxy.requests if "/blobs/" in path]


def test_every_packing_of_a_layer(local: Local, tmp_path: Path) -> None:
    tars = [packed([Member(str(number), text="x" * number)]) for number in range(5)]
    # Several members of gzip, or frames of zstd, are one stream; a tar may end with more than it needs.
    packings = [
        (PLAIN, tars[0] + bytes(1_000_000)),
        (GZIP, gzip.compress(tars[1])),
        (ZSTD, zstd.compress(tars[2])),
        (GZIP, gzip.compress(tars[3][:700]) + gzip.compress(tars[3][700:])),
        (ZSTD, zstd.compress(tars[4][:700]) + zstd.compress(tars[4][700:])),
    ]
    reference = push(local.port, tmp_path, packings, "some/packed:1")
    reading = files.read(reference, layers_of(reference), [Wanted(f"/{number}") for number in range(5)])
    assert [(one.kind, one.layer, one.size) for one in reading.found] == [
        ("file", number, number) for number in range(5)
    ]
    assert (reading.fetched, reading.layers) == (sum(len(data) for _, data in packings), 5)


def test_an_image_of_the_docker_kind(local: Local, tmp_path: Path) -> None:
    (tmp_path / "layer.tar").write_bytes(packed([Member("opt/x", text="1")]))
    name = f"127.0.0.1:{local.port}/some/docker:1"
    command.output(["crane", "append", "--new_layer", tmp_path / "layer.tar", "--new_tag", name])
    layers = layers_of(parse(name))
    assert layers[0].media_type == f"{DOCKER}image.rootfs.diff.tar.gzip"
    assert files.read(parse(name), layers, [Wanted("/opt/x")]).found[0].digest == layers[0].digest


@pytest.mark.parametrize(
    ("media_type", "word"),
    [
        (f"{OCI}layer.nondistributable.v1.tar+gzip", "foreign"),
        (f"{DOCKER}image.rootfs.foreign.diff.tar.gzip", "foreign"),
        ("application/wasm", "application/wasm"),
        (ZSTD, "not a readable"),
        (PLAIN, "not a readable"),
    ],
)
def test_a_layer_that_is_not_what_it_says(local: Local, media_type: str, word: str) -> None:
    layer = local.layers[0]
    wrong = Layer(layer.digest, layer.size, media_type)
    with pytest.raises(RegistryError, match=word) as caught:
        files.read(Reference(f"127.0.0.1:{local.port}", "some/image"), [wrong], [Wanted("/0")])
    assert not isinstance(caught.value, Absent)


@pytest.mark.parametrize(("media_type", "compress"), [(GZIP, gzip.compress), (ZSTD, zstd.compress)])
def test_a_layer_that_was_cut_before_it_was_pushed(
    local: Local, tmp_path: Path, media_type: str, compress: Callable[[bytes], bytes]
) -> None:
    whole = compress(content(9))
    reference = push(local.port, tmp_path, [(media_type, whole[: len(whole) // 2])], "some/cut:1")
    with pytest.raises(Damaged, match="not a readable"):
        files.read(reference, layers_of(reference), [Wanted("/none")])


def test_only_the_layers_down_to_the_answer_are_fetched(local: Local) -> None:
    with faulty(local.port, lambda *_: None) as proxy:
        reading = files.read(local.through(proxy), local.layers, [Wanted("/both"), Wanted("/2")])
        assert [one.layer for one in reading.found] == [3, 2]
        assert fetched(proxy) == [local.layers[3].digest, local.layers[2].digest]
        assert reading.fetched == local.layers[3].size + local.layers[2].size
        # The rest of what was sent are the answers to crane's ping.
        assert proxy.sent - reading.fetched < 100


def test_a_layer_that_is_cut_once_is_read_again_from_its_start(local: Local) -> None:
    cut = local.layers[3].size // 2
    with faulty(local.port, blob_faults(Fault(cut_after=cut), 1)) as proxy:
        reading = files.read(local.through(proxy), local.layers, [Wanted("/both")])
        assert (reading.found[0].text, reading.layers) == ("of 3", 2)
        assert fetched(proxy) == [local.layers[3].digest] * 2
        assert local.layers[3].size < reading.fetched <= local.layers[3].size + cut


@pytest.mark.parametrize(
    ("fault", "error", "requests"),
    [
        (Fault(cut_after=50_000), RegistryError, files.ATTEMPTS),
        (Fault(flip=50_000), Damaged, 1),
        (Fault(flip=5), Damaged, 1),
        (Fault(status=404, body=b'{"errors":[{"code":"BLOB_UNKNOWN"}]}'), Absent, 1),
        (Fault(status=400), RegistryError, 1),
    ],
    ids=["always cut", "a flipped bit", "a flipped bit of the header", "no such blob", "refused"],
)
def test_a_layer_that_cannot_be_fetched_is_an_error_and_no_answer(
    local: Local, fault: Fault, error: type[IrisImagesError], requests: int
) -> None:
    with faulty(local.port, blob_faults(fault)) as proxy:
        with pytest.raises(error) as caught:
            files.read(local.through(proxy), local.layers, [Wanted("/none")])
        assert type(caught.value) is error
        assert local.layers[3].digest in str(caught.value)
        assert fetched(proxy) == [local.layers[3].digest] * requests


@pytest.mark.parametrize(
    ("fault", "words"),
    [(Fault(pause=600), "sent nothing"), (Fault(chunk_pause=LIMIT / 5), "less than 1 MB/s")],
    ids=["silent", "slow"],
)
def test_a_server_that_stalls_or_is_too_slow_is_given_up(local: Local, fault: Fault, words: str) -> None:
    with faulty(local.port, blob_faults(fault)) as proxy:
        blob = local.through(proxy).at(local.layers[3].digest)
        with pytest.raises(CommandTimeout, match=words), blobs.opened(blob, 1000, timeout=LIMIT):
            pass
    assert not any(blob.digest in line for line in processes().values())
