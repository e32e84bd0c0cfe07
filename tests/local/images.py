"""Images made by hand, byte by byte, in a real registry: also those that no builder would make."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from tests.conftest import git

OCI, DOCKER = "application/vnd.oci.image.", "application/vnd.docker."
TYPES = {
    "oci": (
        f"{OCI}manifest.v1+json",
        f"{OCI}config.v1+json",
        f"{OCI}layer.v1.tar+gzip",
        f"{OCI}index.v1+json",
    ),
    "docker": (
        f"{DOCKER}distribution.manifest.v2+json",
        f"{DOCKER}container.image.v1+json",
        f"{DOCKER}image.rootfs.diff.tar.gzip",
        f"{DOCKER}distribution.manifest.list.v2+json",
    ),
}

TABLE = """
[tpu]
task = "tpu"
about = "a small image"
dockerfile = "docker/Dockerfile.tpu"
script = "docker/build_tpu_kaniko.sh"
repository = "ghcr.io/team/image"
tag_prefix = "tpu"
floating_tag = "tpu"
layer_ceiling = 1_000_000
min_layers = 2
launcher = [{ file = "launch.py", name = "IMAGE" }]
asserts = ["/python", "/asserts.py"]
resources.local = { cpu = 1, memory = "1GB", disk = "1GB", timeout_seconds = 60 }
resources.amd64 = { cpu = 1, memory = "1GB", disk = "1GB", timeout_seconds = 60 }
"""
LAUNCHER = """\
\"\"\"Starts jobs.\"\"\"

IMAGE = (
    "REPOSITORY"
    # before: REPOSITORY@sha256:1111111111111111111111111111111111111111111111111111111111111111
    "@sha256:2222222222222222222222222222222222222222222222222222222222222222"
)
"""
DOCKERFILE = """\
ARG HARBOR_COMMIT=1ffb4003f202daadcb7e407f449bd62278b5e8e1
FROM scratch
ARG HARBOR_COMMIT
LABEL org.iris-images.pin.harbor-commit="${HARBOR_COMMIT}"
RUN /python /asserts.py
"""
STEP = "RUN /python /asserts.py"


@dataclass(frozen=True)
class Repository:
    """A repository of a registry on this machine that asks for no login."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"

    def blob(self, content: bytes) -> dict[str, Any]:
        """Push a blob; returns its digest and size."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        place = self._send("POST", "/blobs/uploads/", b"", {}).headers["Location"]
        place += ("&" if "?" in place else "?") + f"digest={digest}"
        self._send("PUT", place, content, {"Content-Type": "application/octet-stream"})
        return {"digest": digest, "size": len(content)}

    def manifest(self, data: Mapping[str, Any], media_type: str, tag: str = "") -> dict[str, Any]:
        """Push a manifest under a tag, or by its digest alone; returns its descriptor."""
        content = json.dumps(data).encode()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._send("PUT", f"/manifests/{tag or digest}", content, {"Content-Type": media_type})
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def image(
        self,
        tag: str = "",
        layers: Sequence[bytes] = (),
        *,
        kind: str = "oci",
        architecture: str = "amd64",
        config: Mapping[str, Any] | None = None,
        history: Sequence[str] = (),
        layer_type: str = "",
        **manifest: object,
    ) -> dict[str, Any]:
        """Push an image of those layers (gzipped tars); returns the descriptor of its manifest."""
        manifest_type, config_type, default_layer, _ = TYPES[kind]
        packed = layers or [layer({"file": b"content"})]
        described = {
            "os": "linux",
            "architecture": architecture,
            "config": dict(config or {}),
            "rootfs": {"type": "layers", "diff_ids": [self._diff_id(content) for content in packed]},
            "history": [{"created_by": step} for step in history],
        }
        data = {
            "schemaVersion": 2,
            "mediaType": manifest_type,
            "config": {"mediaType": config_type, **self.blob(json.dumps(described).encode())},
            "layers": [
                {"mediaType": layer_type or default_layer, **self.blob(content)} for content in packed
            ],
            **manifest,
        }
        return self.manifest(data, manifest_type, tag)

    def index(self, tag: str, children: Sequence[Mapping[str, Any]], *, kind: str = "oci") -> dict[str, Any]:
        """Push an index of those descriptors."""
        data = {"schemaVersion": 2, "mediaType": TYPES[kind][3], "manifests": list(children)}
        return self.manifest(data, TYPES[kind][3], tag)

    def _send(self, method: str, where: str, content: bytes, headers: dict[str, str]) -> HTTPResponse:
        url = where if where.startswith("http") else f"http://{self.host}/v2/{self.path}{where}"
        request = urllib.request.Request(url, content, headers, method=method)  # noqa: S310
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=60)  # noqa: S310
        answer.read()
        return answer

    @staticmethod
    def _diff_id(content: bytes) -> str:
        plain = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        return f"sha256:{hashlib.sha256(plain).hexdigest()}"


def on(child: Mapping[str, Any], platform: str, **more: object) -> dict[str, Any]:
    """A descriptor with the platform that an index says it is for."""
    system, architecture = platform.split("/")
    return {**child, "platform": {"os": system, "architecture": architecture}, **more}


def layer(files: Mapping[str, bytes]) -> bytes:
    """A gzipped tar of those files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), 1, mtime=0)


TWO = (layer({"one": b"1"}), layer({"two": b"2"}))


def labels(source: Path) -> dict[str, str]:
    return {
        "org.opencontainers.image.revision": git(source, "rev-parse", "HEAD"),
        "org.iris-images.pin.harbor-commit": "1ffb4003f202daadcb7e407f449bd62278b5e8e1",
    }


def fit(source: Path) -> dict[str, Any]:
    """What makes an image of that checkout fit."""
    return {"layers": TWO, "config": {"Labels": labels(source)}, "history": [STEP]}


def small_checkout(folder: Path) -> Path:
    """A checkout with the table and the Dockerfile of the small image, made in that folder."""
    (folder / "docker").mkdir(parents=True)
    (folder / "docker/images.toml").write_text(TABLE)
    (folder / "docker/Dockerfile.tpu").write_text(DOCKERFILE)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "one")
    return folder
