"""Invoke's configuration as one frozen dataclass."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from invoke.config import DataProxy

LOCAL = "local"
"""The cluster's name that means: an Iris of our own, on this machine."""


@dataclass(frozen=True)
class Settings:
    """What a user may set; see invoke.yaml for the meaning of each."""

    cluster: str
    cache: Path
    state: Path
    iris_program: str
    executor_image: str
    registry_user: str
    repository: str
    wheels: dict[str, str]

    @property
    def services(self) -> Path:
        """Where the local servers keep their state, their data and their logs."""
        return self.state / "services"

    @property
    def promotions(self) -> Path:
        """Where the records of moves of floating tags lie."""
        return self.state / "promotions"

    @property
    def pins(self) -> Path:
        """Where the records of what was written into launchers lie."""
        return self.state / "pins"

    @property
    def records(self) -> Path:
        """Where the records of builds lie."""
        return self.state / "records"


def read(config: DataProxy, cluster: str = "") -> Settings:
    """The settings in Invoke's configuration; `cluster`, where given, stands above it."""
    return Settings(
        cluster=cluster or config["cluster"],
        cache=_folder(config["paths"]["cache"], "XDG_CACHE_HOME", ".cache"),
        state=_folder(config["paths"]["state"], "XDG_STATE_HOME", ".local/state"),
        iris_program=config["iris"]["program"],
        executor_image=config["executor"]["image"],
        registry_user=config["registry"]["user"],
        repository=config["registry"]["repository"],
        wheels={name.replace("_", "-"): set_ for name, set_ in config["wheels"].items() if set_},
    )


def _folder(given: str, variable: str, below_home: str) -> Path:
    if given:
        return Path(given).expanduser().absolute()
    return Path(os.environ.get(variable) or Path.home() / below_home).absolute() / "iris-images"
