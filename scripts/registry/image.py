"""What was pushed, as the registry shows it: digest, layers, sizes, labels. No layer is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scripts.errors import RegistryError
from scripts.registry import crane
from scripts.registry.reference import Reference


@dataclass(frozen=True)
class Layer:
    """A layer of a manifest: its digest and its compressed size in bytes."""

    digest: str
    size: int


@dataclass(frozen=True)
class Pushed:
    """An image in a registry, by digest. `labels` come from its configuration."""

    reference: Reference
    layers: tuple[Layer, ...]
    architecture: str
    labels: dict[str, str]

    @property
    def largest(self) -> int:
        """The size of the largest layer in bytes, compressed."""
        return max(layer.size for layer in self.layers)

    @property
    def total(self) -> int:
        """The size of all layers in bytes, compressed."""
        return sum(layer.size for layer in self.layers)


def read(reference: Reference, *, env: Mapping[str, str | None] | None = None) -> Pushed:
    """Read an image's manifest and configuration, both by the digest that its tag gives now.

    Raises:
        RegistryError: it is not an image but an index, or the registry gave another answer.
    """
    pinned = reference.at(crane.digest(reference, env=env))
    manifest, config = crane.manifest(pinned, env=env), crane.config(pinned, env=env)
    if not manifest.get("layers"):
        kind = manifest.get("mediaType", "of no kind")
        raise RegistryError(f"{pinned} is not an image with layers: its manifest is {kind}.")
    layers = tuple(Layer(entry["digest"], entry["size"]) for entry in manifest["layers"])
    return Pushed(
        pinned, layers, config.get("architecture", ""), config.get("config", {}).get("Labels") or {}
    )
