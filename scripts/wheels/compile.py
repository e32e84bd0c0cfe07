"""Makes a wheel set, or finds that it is made.

A wheel is an entry of the cache once it is checked, so a run that was stopped goes on with the one that was
missing. The wheelhouse is filled from there; its MANIFEST is written last.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.progress import say
from scripts.settings import LOCAL, Settings
from scripts.wheels import container, house, native, sets
from scripts.wheels.sets import Target

ENGINES = {"native": native.wheels, "docker": container.wheels}
MACHINES = {"": "", "amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Request:
    """What a person asked for; an empty word leaves it to the settings and the machine."""

    wheel_set: str = ""
    architecture: str = ""
    engine: str = "native"


def make(request: Request, settings: Settings) -> Path:
    """The folder that holds exactly the wheels of the set, made now where it does not.

    Raises:
        InputError: no such set.
        ToolMissing: the machine lacks something; nothing was downloaded.
        WheelsRefused: a wheel is not what it must be.
        CommandFailed, CommandTimeout: a compiler, uv, git or docker.
    """
    target = chosen(request, settings)
    folder = house.folder(settings, target)
    say(f"Key {target.key_id}: " + " ".join(f"{name}={value}" for name, value in target.key.items()))
    if not (faults := house.faults(folder, target)):
        say(f"{folder} holds exactly the wheels of this key: nothing to do.")
        return folder
    if folder.exists():
        say(f"{folder} does not hold them: {'; '.join(faults)}.")
    house.fill(folder, target, ENGINES[request.engine](target, settings))
    return folder


def chosen(request: Request, settings: Settings) -> Target:
    """The set that was asked for; else the small one, until a cluster is configured.

    Raises:
        InputError: there is no such set.
    """
    name = request.wheel_set or (sets.SMALL if settings.cluster == LOCAL else sets.PRODUCTION)
    wheel_set = sets.load(name)
    why = "as asked" if request.wheel_set else f"the cluster is {settings.cluster}"
    other = f"; --set {sets.PRODUCTION} makes the production set" if name == sets.SMALL else ""
    say(f"Wheel set {name} ({why}{other}): {wheel_set.about}.")
    return sets.target(wheel_set, MACHINES[request.architecture])
