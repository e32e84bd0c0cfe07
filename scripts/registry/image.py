"""What a reference gives: one image, or an index of images, as the registry shows it. No layer is fetched.

The kinds and their fields are those of the OCI image specification ("Image Index", "Image Manifest") and of
Docker's image manifest version 2, schema 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from scripts import shape
from scripts.errors import Absent, RegistryError
from scripts.registry import crane
from scripts.registry.crane import Document
from scripts.registry.reference import Reference

OCI, DOCKER = "application/vnd.oci.image.", "application/vnd.docker.distribution."
KINDS = {
    f"{OCI}index.v1+json": "OCI index",
    f"{OCI}manifest.v1+json": "OCI manifest",
    f"{DOCKER}manifest.list.v2+json": "Docker list",
    f"{DOCKER}manifest.v2+json": "Docker manifest",
}
INDEXES = ("OCI index", "Docker list")
ATTESTATION = "vnd.docker.reference.type"
"""The annotation by which BuildKit marks a child of an index that is not an image."""
Env = Mapping[str, str | None] | None


@dataclass(frozen=True)
class Layer:
    """A layer of a manifest: its digest, its compressed size in bytes, its media type."""

    digest: str
    size: int
    media_type: str


@dataclass(frozen=True)
class Child:
    """An entry of an index. `platform` is os/architecture[/variant]; `kind` is empty when it is not known."""

    digest: str
    kind: str
    platform: str
    attestation: bool

    def runs_on(self, platform: str) -> bool:
        """Whether a node of os/architecture would take it; of a platform without a variant any variant."""
        image = not self.attestation and self.kind not in INDEXES
        return image and (self.platform == platform or self.platform.startswith(f"{platform}/"))


@dataclass(frozen=True)
class Pushed:
    """One image: its manifest by digest, and its configuration."""

    reference: Reference
    kind: str
    layers: tuple[Layer, ...]
    config: dict[str, Any]
    config_digest: str
    annotations: dict[str, str]

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the configuration."""
        return (self.config.get("config") or {}).get("Labels") or {}

    @property
    def architecture(self) -> str:
        """The architecture by the configuration, which is what decides on a node."""
        return self.config.get("architecture") or ""

    @property
    def platform(self) -> str:
        """os/architecture[/variant] by the configuration."""
        return _platform(self.config)

    @property
    def largest(self) -> int:
        """The size of the largest layer in bytes, compressed."""
        return max((layer.size for layer in self.layers), default=0)

    @property
    def total(self) -> int:
        """The size of all layers in bytes, compressed."""
        return sum(layer.size for layer in self.layers)

    def facts(self) -> dict[str, Any]:
        """What a record holds of it."""
        return {
            "reference": str(self.reference),
            "digest": self.reference.digest,
            "architecture": self.architecture,
            "layers": [asdict(layer) for layer in self.layers],
            "largest": self.largest,
            "total": self.total,
            "labels": self.labels,
        }


@dataclass(frozen=True)
class Named:
    """What a reference gives.

    Attributes:
        reference: by digest, of the index or the image itself.
        kind: one of the values of KINDS.
        children: of an index, those of an index inside it after it.
        missing: children that the registry does not have.
        image: the one for the architecture that was asked for; None: the index has none.
        annotations: of an index.
    """

    reference: Reference
    kind: str
    children: tuple[Child, ...] = ()
    missing: tuple[Child, ...] = ()
    image: Pushed | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Reader:
    """Reads manifests of one repository, each once."""

    repository: Reference
    env: Env
    documents: dict[str, Document | None] = field(default_factory=dict)

    def document(self, digest: str) -> Document | None:
        """A manifest by digest; None: the registry says that it has none."""
        if digest not in self.documents:
            try:
                self.documents[digest] = crane.manifest(self.repository.at(digest), env=self.env)
            except Absent:
                self.documents[digest] = None
        return self.documents[digest]

    def children(self, index: Document) -> Iterator[Child]:
        """The entries of an index, each followed by its own where it is an index itself."""
        shape.check(f"The index {index.digest}", index.data, shape.INDEX)
        for entry in index.data["manifests"]:
            child = _child(entry)
            yield child
            inner = self.document(child.digest)
            if inner and kind_of(inner) in INDEXES:
                yield from self.children(inner)

    def image(self, document: Document) -> Pushed:
        """The image of a manifest, with its configuration."""
        data = document.data
        shape.check(f"The manifest {document.digest}", data, shape.MANIFEST)
        config_digest = data["config"]["digest"]
        config = crane.blob(self.repository.at(config_digest), env=self.env)
        shape.check(f"The configuration {config_digest}", config, shape.CONFIG)
        return Pushed(
            self.repository.at(document.digest),
            kind_of(document),
            tuple(Layer(entry["digest"], entry["size"], entry["mediaType"]) for entry in data["layers"]),
            config,
            config_digest,
            data.get("annotations") or {},
        )


def look(reference: Reference, architecture: str, *, env: Env = None) -> Named:
    """What a reference gives now, and of an index the image for linux and that architecture.

    One image is given whatever its architecture: its own configuration says that. Four requests for an image.

    Raises:
        Absent: there is no such tag, digest or repository.
        RegistryError: it is of no kind that a node can run, or the registry gave another answer.
    """
    top = crane.manifest(reference, env=env)
    pinned, kind = reference.at(top.digest), kind_of(top)
    reader = _Reader(pinned, env)
    if kind not in INDEXES:
        return Named(pinned, kind, image=reader.image(top))
    children = tuple(reader.children(top))
    missing = tuple(child for child in children if reader.document(child.digest) is None)
    of_platform = [child for child in children if child.runs_on(f"linux/{architecture}")]
    documents = [document for child in of_platform if (document := reader.document(child.digest))]
    found = documents[0] if documents else None
    pushed = reader.image(found) if found else None
    return Named(pinned, kind, children, missing, pushed, top.data.get("annotations") or {})


def kind_of(document: Document) -> str:
    """The kind of a manifest, by its media type, and where it has none by what is in it.

    Raises:
        RegistryError: it is neither an image nor an index (schema 1, or something else).
    """
    if kind := KINDS.get(str(document.media_type)):
        return kind
    if document.data.get("schemaVersion") == 2:
        for key, kind in (("manifests", "OCI index"), ("layers", "OCI manifest")):
            if key in document.data:
                return kind
    what = document.media_type or "without a media type"
    raise RegistryError(
        f"The manifest {document.digest} is {what}: no image that a node can run.", "name an image."
    )


def _child(entry: Mapping[str, Any]) -> Child:
    """An entry of an index. A node goes by the platform, so an entry that has one is no attestation."""
    platform = _platform(entry.get("platform") or {})
    marked = ATTESTATION in (entry.get("annotations") or {}) or bool(entry.get("artifactType"))
    attestation = platform == "unknown/unknown" or (marked and not platform)
    return Child(entry["digest"], KINDS.get(entry.get("mediaType") or "", ""), platform, attestation)


def _platform(data: Mapping[str, Any]) -> str:
    return "/".join(str(data[key]) for key in ("os", "architecture", "variant") if data.get(key))
