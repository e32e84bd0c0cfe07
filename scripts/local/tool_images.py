"""What a local task fetches, as images in the local registry: the kaniko executor, crane, and wheels.

Each is the same bytes each time. Its tag says what is in it, so it is pushed once.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from scripts import cache, command
from scripts.local import certificates, toolchain
from scripts.progress import step
from scripts.wheels import layout

EXECUTOR_SOURCE = "https://github.com/coder/kaniko"
CRANE_SOURCE = "https://github.com/google/go-containerregistry"
PUSH_SECONDS = 300.0


def executor_image(
    crane: Path,
    registry: str,
    executor: Path,
    repository: str = "iris-images/executor",
) -> str:
    """The image with /kaniko/executor and this machine's certificate authorities, by digest.

    Args:
        crane: the program that pushes.
        registry: host and port (127.0.0.1:5005).
        executor: the compiled executor.
        repository: where in the registry the image lies.

    Raises:
        CommandFailed: the registry did not take it.
    """
    files = {
        "kaniko/executor": executor,
        "kaniko/ssl/certs/ca-certificates.crt": certificates.bundle(),
    }
    tag = f"{toolchain.EXECUTOR.version}-{cache.key(*files.values())}"
    return _image(crane, f"{registry}/{repository}", tag, files, EXECUTOR_SOURCE)


def crane_archive(crane: Path, registry: str, repository: str = "iris-images/crane") -> toolchain.Download:
    """A gzipped tar with `crane` at its top, as a blob of the local registry: curl can fetch it.

    Arguments and errors are those of executor_image.
    """
    image = _image(crane, f"{registry}/{repository}", cache.key(crane), {"crane": crane}, CRANE_SOURCE)
    manifest = json.loads(command.output([crane, "manifest", image]))
    digest = manifest["layers"][0]["digest"]
    return toolchain.Download(
        f"http://{registry}/v2/{repository}/blobs/{digest}", digest.removeprefix("sha256:")
    )


def wheel_set(crane: Path, registry: str, wheels: Path, repository: str = "iris-images/wheels") -> str:
    """A prebuilt wheel set, as a published one is stored, by digest.

    Arguments and errors are those of executor_image; `wheels` is the folder of the set.
    """
    with tempfile.TemporaryDirectory() as folder:
        digest = layout.write(Path(folder), sorted(wheels.iterdir()), toolchain.architecture(), {})
        target = f"{registry}/{repository}:{digest.replace(':', '-')}"
        with step(f"Pushing {target}"):
            command.run([crane, "push", folder, target], timeout=PUSH_SECONDS)
    return f"{registry}/{repository}@{digest}"


def _image(crane: Path, repository: str, tag: str, files: Mapping[str, Path], source: str) -> str:
    """The reference by digest of the image with those files; pushed unless the registry shows it."""
    reference = f"{repository}:{tag}"
    # A registry that cannot answer will not take the image either: then the push says why.
    known = command.run([crane, "digest", reference], timeout=PUSH_SECONDS, ok=None)
    if known.code == 0:
        return f"{repository}@{known.stdout.strip()}"
    with step(f"Pushing {reference}"), tempfile.TemporaryDirectory() as scratch:
        layer = Path(scratch) / "layer.tar.gz"
        layer.write_bytes(_layer(files))
        # The real tag comes last: an image without its label never has it.
        append: list[str | Path] = [crane, "append", "--oci-empty-base", "--new_layer", layer]
        bare = command.output([*append, "--new_tag", f"{repository}:unlabelled"], timeout=PUSH_SECONDS)
        platform = f"linux/{toolchain.architecture()}"
        label = f"org.opencontainers.image.source={source}"
        mutate: list[str | Path] = [crane, "mutate", bare, "--set-platform", platform, "--label", label]
        return command.output([*mutate, "--tag", reference], timeout=PUSH_SECONDS)


def _layer(files: Mapping[str, Path]) -> bytes:
    """A gzipped tar of those files: the same bytes each time, fast rather than small."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as tar,
    ):
        for name, path in files.items():
            member = tarfile.TarInfo(name)
            content = path.read_bytes()
            member.size, member.mode = len(content), 0o755 if os.access(path, os.X_OK) else 0o644
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()
