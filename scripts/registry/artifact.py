"""A document stored beside an image, in the image's own repository, as an OCI artifact that refers to it.

The manifest is that of the OCI image specification 1.1, "Guidelines for Artifact Usage": an artifactType, the
empty configuration, the document as the one layer, and the image as the subject. crane keeps the list of
referrers (distribution specification 1.1, "Referrers Tag Schema") where the registry does not.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts import shape
from scripts.errors import RegistryError
from scripts.registry import crane
from scripts.registry.crane import Document, Env
from scripts.registry.reference import Reference

RECORD = "application/vnd.iris-images.record.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
EMPTY_TYPE, EMPTY = "application/vnd.oci.empty.v1+json", b"{}"


def tag_of(subject: Reference) -> Reference:
    """Where the document about an image lies: a tag made of the image's digest, in the same repository."""
    return replace(subject, tag=f"{subject.digest.replace(':', '-')}.record", digest="")


def attach(subject: Reference, document: bytes, *, env: Env | None = None) -> Reference:
    """Store a JSON document beside an image; the same document twice is stored once.

    The newest document is the one that `attached` gives. An older one, also one of another build that gave
    the same digest, stays in the repository and in the list of the image's referrers.

    Args:
        subject: the image, by digest.

    Returns:
        The artifact, by digest.

    Raises:
        Absent: the registry does not have the image.
        CredentialError, RegistryError: it did not take the artifact.
    """
    manifest = _manifest(crane.manifest(subject, env=env), document)
    with tempfile.TemporaryDirectory(prefix="iris-images-") as folder:
        _layout(Path(folder), manifest, (EMPTY, document))
        crane.ask(["push", folder, str(tag_of(subject))], env=env)
    return subject.at(_digest(manifest))


def attached(subject: Reference, *, env: Env | None = None) -> bytes:
    """The document that was attached last to an image given by digest. No list of referrers is needed.

    Raises:
        Absent: the registry says that there is none.
        RegistryError: something else stands in its place, or it is about another image.
    """
    tag = tag_of(subject)
    found = crane.manifest(tag, env=env).data
    shape.check(f"The manifest of {tag}", found, shape.MANIFEST | {"subject": {"digest!": str}})
    about, layers = (found.get("subject") or {}).get("digest"), found["layers"]
    if found.get("artifactType") != RECORD or len(layers) != 1 or about != subject.digest:
        raise RegistryError(
            f"{tag} is not the record of a build of {subject.digest}.",
            "somebody else took that tag: remove it, and attach the record again.",
        )
    return crane.ask(["blob", str(subject.at(layers[0]["digest"]))], env=env).encode()


def _manifest(image: Document, document: bytes) -> bytes:
    """The artifact's manifest; the same bytes for the same image and document."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": RECORD,
        "config": _descriptor(EMPTY_TYPE, EMPTY),
        "layers": [_descriptor(RECORD, document)],
        "subject": {"mediaType": image.media_type, "digest": image.digest, "size": image.size},
    }
    return json.dumps(manifest, separators=(",", ":")).encode()


def _layout(folder: Path, manifest: bytes, blobs: tuple[bytes, ...]) -> None:
    """Write an OCI image layout (specification 1.1, "OCI Image Layout Specification") of one manifest."""
    store = folder / "blobs" / "sha256"
    store.mkdir(parents=True)
    for blob in (manifest, *blobs):
        (store / _digest(blob).partition(":")[2]).write_bytes(blob)
    close_layout(folder, _descriptor(MANIFEST, manifest))


def close_layout(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Make a folder with blobs an OCI image layout: of the one manifest that a descriptor names."""
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
