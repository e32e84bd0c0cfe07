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
class Lock:
    """A lock file that also decides on a package which the image pins.

    Attributes:
        package: its name in the lock.
        pin: the ARG of the Dockerfile that holds its version or commit.
        repository, commit: the ARGs that say where the lock is.
        path: of the lock file in that repository.
        resyncs: whether workers install from the lock when they start: then the lock is the authority.
    """

    package: str
    pin: str
    repository: str
    commit: str
    path: str = "uv.lock"
    resyncs: bool = False


@dataclass(frozen=True)
class Inside:
    """What must be true of a file in the image, or of a Python package that is installed in it.

    Attributes:
        file: an absolute path; `*`, `?` and `[…]` may stand in it.
        pattern: a line that matches this regular expression must be there; `must = false`: must not.
        followed_by, within: a line that matches must (must not) come within so many lines after each match.
        machine: the file is a program for the image's architecture.
        package: in place of a file; `file` is then the folder of its .dist-info.
        commit, version: the ARGs of the Dockerfile that the package must be of.
    """

    file: str
    pattern: str = ""
    followed_by: str = ""
    within: int = 0
    must: bool = True
    machine: bool = False
    package: str = ""
    commit: str = ""
    version: str = ""


@dataclass(frozen=True)
class Launcher:
    """A value in the source of a launcher that a pin of the image writes.

    Attributes:
        file: relative to the root of the launcher's repository.
        name, key, field: the constant, and of a table the row and its field (see release/launcher.py).
        holds: "reference", "digest", "tag", "revision", or the name of a pin of the Dockerfile.
        variant, architecture: of the image that stands there.
    """

    file: str
    name: str
    key: tuple[str, ...] = ()
    field: str = ""
    holds: str = "reference"
    variant: str = ""
    architecture: str = "amd64"


@dataclass(frozen=True)
class Image:
    """One table of the catalogue. `resources` by architecture, and `local`.

    Attributes:
        layer_ceiling: bytes, compressed, that no layer may be larger than.
        min_layers: fewer of them mean that the image was packed as one.
        public: further repositories that everybody must be able to read, as host/path.
        lock: the lock file that must agree with the pins.
        inside: what is checked in the layers, on demand.
        launcher: where consumers pin it; without any, its digest goes into an issue or a pull request.
    """

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
    min_layers: int = 1
    public: tuple[str, ...] = ()
    lock: Lock | None = None
    inside: tuple[Inside, ...] = ()
    launcher: tuple[Launcher, ...] = ()

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

    def pinned_tag(self, variant: str, revision: str, architecture: str) -> str:
        """The tag that names a build for good: prefix, commit and, but for amd64, the architecture."""
        suffix = "" if architecture == "amd64" else f"-{architecture}"
        return f"{self.variant(variant).tag_prefix}-{revision}{suffix}"

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
        resources = {key: Resources(**value) for key, value in table.get("resources", {}).items()}
        given: dict[str, Any] = {
            **table,
            "resources": resources,
            "variants": {key: Variant(**value) for key, value in table.get("variants", {}).items()},
            "lock": Lock(**table["lock"]) if "lock" in table else None,
            **{key: tuple(table.get(key, ())) for key in ("asserts", "public")},
            "inside": tuple(Inside(**value) for value in table.get("inside", ())),
            "launcher": tuple(
                Launcher(**{**value, "key": tuple(value.get("key", ()))})
                for value in table.get("launcher", ())
            ),
        }
        image = Image(name=name, **given)
    except (TypeError, AttributeError) as wrong:
        known = ", ".join(entry.name for entry in fields(Image) if entry.name != "name")
        raise ConfigurationError(
            f"{path}, table [{name}]: {wrong}.", f"the keys of a table are: {known}."
        ) from wrong
    if "local" not in resources:
        raise ConfigurationError(f"{path}, table [{name}]: no [{name}.resources.local].", "add it.")
    return image
