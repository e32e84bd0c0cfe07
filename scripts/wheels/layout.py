"""A wheel set as an image: one layer a file, each an uncompressed tar with that file below /wheels.

It is an image, so crane export and COPY --from read it. A layer is the same bytes for the same file, whoever
writes it, so a registry keeps it once, and one large wheel is one blob that ranges can be asked of.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from scripts.registry.artifact import MANIFEST, close_layout

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
TITLE = "org.opencontainers.image.title"
FOLDER = "wheels"

Descriptor = dict[str, Any]


class _Hashed:
    """A file that computes the sha256 of what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.sha256, self.size = file, hashlib.sha256(), 0

    def write(self, content: bytes) -> int:
        self.sha256.update(content)
        self.size += len(content)
        return self._file.write(content)


def write(folder: Path, files: Sequence[Path], architecture: str, labels: Mapping[str, str]) -> str:
    """Write an OCI image layout (specification 1.1) of those files; returns the manifest's digest.

    Args:
        folder: an empty one; it becomes as large as the files.
        architecture: amd64 or arm64.
        labels: of the image's configuration.
    """
    store = folder / "blobs" / "sha256"
    store.mkdir(parents=True)
    layers = [_layer(store, path) for path in files]
    config = {
        "os": "linux",
        "architecture": architecture,
        "config": {"Labels": dict(labels)},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _blob(store, CONFIG, config),
        "layers": layers,
    }
    found = _blob(store, MANIFEST, manifest)
    close_layout(folder, found)
    return str(found["digest"])


def _layer(store: Path, path: Path) -> Descriptor:
    part = store / "part"
    with part.open("wb") as file:
        hashed = _Hashed(file)
        # PAX, so that names of any length and alphabet are written in one way.
        with tarfile.open(fileobj=cast("IO[bytes]", hashed), mode="w|", format=tarfile.PAX_FORMAT) as tar:
            member = tarfile.TarInfo(f"{FOLDER}/{path.name}")
            member.size = path.stat().st_size
            with path.open("rb") as content:
                tar.addfile(member, content)
    digest = hashed.sha256.hexdigest()
    part.rename(store / digest)
    described = {"mediaType": LAYER, "digest": f"sha256:{digest}", "size": hashed.size}
    return {**described, "annotations": {TITLE: path.name}}


def _blob(store: Path, media_type: str, data: Mapping[str, Any]) -> Descriptor:
    content = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(content).hexdigest()
    (store / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def content(stream: IO[bytes]) -> tuple[str, str, int, bytes]:
    """Name, sha256, size and first 64 KiB of the one file in a layer, read as a stream.

    Raises:
        tarfile.TarError: it is no such layer.
    """
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        member = tar.next()
        opened = tar.extractfile(member) if member else None
        if not member or not opened:
            raise tarfile.ReadError("no file in the layer")
        head = opened.read(1 << 16)
        digest = hashlib.sha256(head)
        while chunk := opened.read(1 << 20):
            digest.update(chunk)
        return member.name.removeprefix(f"{FOLDER}/"), digest.hexdigest(), member.size, head
