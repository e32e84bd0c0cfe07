"""docker/wheel-sets/*.toml as frozen dataclasses: which wheels, from where, for which pins."""

from __future__ import annotations

import platform
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from scripts import cache
from scripts.errors import ConfigurationError, InputError
from scripts.pins import dockerfile
from scripts.wheels import manifest

ROOT = Path(__file__).parents[2]
FOLDER = Path("docker/wheel-sets")
SMALL, PRODUCTION = "small", "gpu-rl"


@dataclass(frozen=True)
class Wheel:
    """One table [wheels.NAME]: a project that is compiled to one wheel.

    Attributes:
        name: of the project, as pip says it.
        source: its folder in this repository; or else
        repo, commit: the ARGs that say where it is cloned from, and at which commit.
        version: the ARG that its version must be; empty: any.
        stamped: its version holds the commit, as `+g<commit>`.
        extensions: the modules that must be there, as paths in the wheel without an ending.
    """

    name: str
    extensions: tuple[str, ...]
    source: str = ""
    repo: str = ""
    commit: str = ""
    version: str = ""
    stamped: bool = False

    @property
    def args(self) -> tuple[str, ...]:
        """The ARGs that are this wheel's own, without its address: that may change and mean the same."""
        return tuple(filter(None, (self.commit, self.version)))


@dataclass(frozen=True)
class WheelSet:
    """One file: the wheels that belong together.

    Attributes:
        dockerfile: whose ARGs are the pins, and whose stage wheel-builder makes the set in a container.
        key: the names on each line of MANIFEST.
        pins: the ARGs that every wheel depends on.
        memory, disk: bytes that the machine must have.
        thread_memory: bytes that one thread of a compiler takes.
        requirements: a file of hashes that makes the environment; empty: the trainer's locked one.
    """

    name: str
    about: str
    dockerfile: str
    key: tuple[tuple[str, ...], ...]
    pins: tuple[str, ...]
    memory: int
    thread_memory: int
    disk: int
    wheels: tuple[Wheel, ...]
    requirements: str = ""


@dataclass(frozen=True)
class Target:
    """A set with the values of its pins, for the architecture of one machine (x86_64, aarch64)."""

    wheel_set: WheelSet
    values: dict[str, str]

    @property
    def key(self) -> dict[str, str]:
        """The names and normalised values that MANIFEST gives, in its order."""
        names = [name for line in self.wheel_set.key for name in line]
        return {name: manifest.normalised(name, self.values[name]) for name in names}

    @property
    def key_id(self) -> str:
        """Sixteen hexadecimal digits that stand for the key."""
        return cache.key(manifest.key_text(self.key, self.wheel_set.key))

    def pinned(self, *names: str) -> dict[str, str]:
        """The normalised values of these ARGs."""
        return {name: manifest.normalised(name, self.values[name]) for name in names}


def names(root: Path = ROOT) -> list[str]:
    """The sets that there are."""
    return sorted(path.stem for path in (root / FOLDER).glob("*.toml"))


def load(name: str, root: Path = ROOT) -> WheelSet:
    """The set of that name.

    Raises:
        InputError: there is none.
        ConfigurationError: its file is wrong, and how.
    """
    if name not in names(root):
        raise InputError(f"There is no wheel set {name!r}.", f"sets: {', '.join(names(root))}.")
    path = root / FOLDER / f"{name}.toml"
    try:
        return _read(name, tomllib.loads(path.read_text()))
    except (tomllib.TOMLDecodeError, TypeError, KeyError) as wrong:
        known = ", ".join(field.name for field in (*fields(WheelSet), *fields(Wheel)) if field.name != "name")
        raise ConfigurationError(
            f"{path}: {wrong}.", f"the keys of a set and of a wheel: {known}."
        ) from wrong


def target(wheel_set: WheelSet, machine: str = "", root: Path = ROOT) -> Target:
    """The set's pins as its Dockerfile gives them, for `uname -m` (this machine's by default).

    Raises:
        ConfigurationError: the Dockerfile lacks a pin that the set names.
    """
    pins = dockerfile.pins((root / wheel_set.dockerfile).read_text())
    named = {
        *wheel_set.pins,
        *(arg for wheel in wheel_set.wheels for arg in (*wheel.args, wheel.repo) if arg),
    }
    if missing := sorted(named - pins.keys()):
        raise ConfigurationError(
            f"{wheel_set.dockerfile} has no ARG {', '.join(missing)}, "
            f"which docker/wheel-sets/{wheel_set.name}.toml names."
        )
    own: list[str | Path] = [source_key(root / wheel.source) for wheel in wheel_set.wheels if wheel.source]
    own += [root / wheel_set.requirements] if wheel_set.requirements else []
    derived = {
        "CUDA": cuda_version(pins["CUDA_INDEX"]),
        "PY": "cp" + pins["PYTHON_VERSION"].replace(".", ""),
        "PLATFORM": f"linux_{machine or platform.machine()}",
        "SOURCES": cache.key(*own),
    }
    return Target(wheel_set, pins | derived)


def cuda_version(index: str) -> str:
    """The CUDA of a wheel index: cu129 is 12.9."""
    digits = index.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}"


def source_key(folder: Path) -> str:
    """Sixteen hexadecimal digits over the names and the content of a folder's files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return cache.key("\n".join(str(path.relative_to(folder)) for path in files), *files)


def _read(name: str, table: dict[str, Any]) -> WheelSet:
    wheels = tuple(
        Wheel(name=key, extensions=tuple(value.pop("extensions")), **value)
        for key, value in table.pop("wheels").items()
    )
    key = tuple(tuple(line) for line in table.pop("key"))
    return WheelSet(name=name, key=key, pins=tuple(table.pop("pins")), wheels=wheels, **table)
