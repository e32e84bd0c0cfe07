"""The wheelhouse: the folder that holds exactly the wheels of one set, and its MANIFEST."""

from __future__ import annotations

import shutil
from pathlib import Path

from scripts.cache import locked
from scripts.errors import WheelsRefused
from scripts.progress import say
from scripts.settings import Settings
from scripts.wheels import manifest
from scripts.wheels.check import Kept
from scripts.wheels.manifest import Manifest
from scripts.wheels.sets import Target


def folder(settings: Settings, target: Target) -> Path:
    """Where the wheels of a set lie: one folder for each architecture, whatever the key."""
    machine = target.values["PLATFORM"].removeprefix("linux_")
    return settings.state / "wheelhouse" / target.wheel_set.name / machine


def faults(house: Path, target: Target) -> list[str]:
    """What keeps the folder from being the set of the target's key; every hash is computed."""
    try:
        found = manifest.read(house)
    except WheelsRefused as damaged:
        return [damaged.what.removesuffix(".")]
    if not found:
        return [f"no {manifest.NAME}"]
    counted = len(found.wheels) == len(target.wheel_set.wheels)
    return manifest.differences(target.key, found.key) or [
        *manifest.faults(house, found),
        *([] if counted else [f"{manifest.NAME} names {len(found.wheels)} wheels"]),
    ]


def fill(house: Path, target: Target, wheels: list[Kept]) -> None:
    """Put exactly these wheels into the folder: what is there and not of the set goes, MANIFEST comes last.

    Raises:
        WheelsRefused: a wheel is no longer what was checked.
    """
    with locked(house.with_name(f".{house.name}.lock")):
        house.mkdir(exist_ok=True)
        # Without it nobody takes the folder for a set.
        (house / manifest.NAME).unlink(missing_ok=True)
        for path in house.glob("*.whl*"):
            path.unlink()
        for wheel in wheels:
            _copy(wheel, house)
        entries = tuple(sorted((wheel.checked.entry for wheel in wheels), key=lambda entry: entry.name))
        manifest.write(house, Manifest(target.key, entries), target.wheel_set.key)
    say(f"{house} holds the wheel set {target.wheel_set.name}, key {target.key_id}.")


def _copy(wheel: Kept, house: Path) -> None:
    part = house / f"{wheel.path.name}.part"
    # A copy, not a link: damage to the one is no damage to the other.
    shutil.copyfile(wheel.path, part)
    found = manifest.entry(part)
    if (found.sha256, found.size) != (wheel.checked.sha256, wheel.checked.size):
        part.unlink()
        raise WheelsRefused(
            f"{wheel.path} is no longer the wheel that was checked.",
            f"remove {wheel.path.parent}, and it is compiled again.",
        )
    part.rename(house / wheel.path.name)
