"""docker/images.toml as frozen dataclasses: what an image is, in one table."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from scripts.errors import ConfigurationError, InputError

CATALOGUE = Path("docker/images.toml")
ARCHITECTURES = ("amd64", "arm64")


@dataclass(frozen=True)
class Resources:
    """What a build asks Iris for. Memory and disk in Iris' notation; the time limit in seconds."""

    cpu: int
    memory: str
    disk: str
    timeout_seconds: int
    gpu: str = ""
    max_retries: int = 0
    inputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """The same Dockerfile with other inputs, under another tag."""

    tag_prefix: str
    inputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Image:
    """One table of the catalogue. `layer_ceiling` in bytes; `resources` by architecture, and `local`."""

    name: str
    task: str
    about: str
    dockerfile: str
    script: str
    repository: str
    tag_prefix: str
    layer_ceiling: int
    asserts: tuple[str, ...]
    resources: dict[str, Resources]
    variants: dict[str, Variant]
    floating_tag: str = ""
    wheels: bool = False

    def variant(self, name: str) -> Variant:
        """The variant of that name; the empty name is the image itself.

        Raises:
            InputError: there is no such variant.
        """
        if not name:
            return Variant(self.tag_prefix)
        if name not in self.variants:
            known = ", ".join(self.variants) or "none"
            raise InputError(f"{self.name} has no variant {name!r}.", f"variants: {known}.")
        return self.variants[name]

    def resources_for(self, architecture: str, *, local: bool) -> Resources:
        """What a build of that architecture asks for.

        Raises:
            InputError: the image is not built for that architecture.
        """
        if architecture not in self.resources or architecture not in ARCHITECTURES:
            known = ", ".join(name for name in self.resources if name in ARCHITECTURES)
            raise InputError(f"{self.name} is not built for {architecture!r}.", f"architectures: {known}.")
        return self.resources["local" if local else architecture]


def load(context: Path) -> dict[str, Image]:
    """The catalogue of a checkout, by the name of the image.

    Raises:
        ConfigurationError: the file is missing, or a table of it is wrong (which one, and how).
    """
    path = context / CATALOGUE
    try:
        tables = tomllib.loads(path.read_text())
    except FileNotFoundError as missing:
        raise ConfigurationError(
            f"{path} does not exist.", "give a checkout that holds it with --context."
        ) from missing
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise ConfigurationError(f"{path} is not TOML: {wrong}.") from wrong
    return {name: _image(path, name, table) for name, table in tables.items()}


def of_context(context: Path, image: Image) -> Image:
    """The image's table in another checkout, where that has a catalogue with it; else the one given."""
    return load(context).get(image.name, image) if (context / CATALOGUE).exists() else image


def _image(path: Path, name: str, table: dict[str, Any]) -> Image:
    try:
        resources = {key: Resources(**value) for key, value in table.pop("resources", {}).items()}
        variants = {key: Variant(**value) for key, value in table.pop("variants", {}).items()}
        asserts = tuple(table.pop("asserts", ()))
        image = Image(name=name, asserts=asserts, resources=resources, variants=variants, **table)
    except (TypeError, AttributeError) as wrong:
        known = ", ".join(entry.name for entry in fields(Image) if entry.name != "name")
        raise ConfigurationError(
            f"{path}, table [{name}]: {wrong}.", f"the keys of a table are: {known}."
        ) from wrong
    if "local" not in resources:
        raise ConfigurationError(f"{path}, table [{name}]: no [{name}.resources.local].", "add it.")
    return image
