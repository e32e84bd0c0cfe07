"""`inv wheels.publish`, `inv wheels.verify`, `inv wheels.list`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from scripts import sites
from scripts.errors import WheelsRefused
from scripts.progress import say, size
from scripts.registry import reference
from scripts.settings import Settings
from scripts.wheels import files, house, manifest, store
from scripts.wheels.manifest import Manifest
from scripts.wheels.sets import Target


def publish(settings: Settings, target: Target, to: str = "", *, dry_run: bool = False) -> None:
    """Publish the wheelhouse of a set, read it back, and print its reference by digest.

    Args:
        target: the set, with the Dockerfile's pins (compile.chosen).
        to: a repository (host/path) in place of the project's; or an address with :// for fsspec.

    Raises:
        WheelsRefused: the wheelhouse is not the set of the Dockerfile's pins; the tag holds something else.
        CredentialError, RegistryError: the registry did not take it.
    """
    folder = house.folder(settings, target)
    found = _whole(folder, target)
    tag = store.tag_of((folder / manifest.NAME).read_bytes())
    where = to or store.repository(settings).repository
    total = sum(wheel.size for wheel in found.wheels)
    say(
        f"{'Would publish' if dry_run else 'Publishing'} {folder} ({len(found.wheels)} wheels, {size(total)})"
    )
    say(f"to {where}, as {tag}.")
    if not dry_run:
        print(
            files.publish(where, tag, folder, found)
            if "://" in where
            else _push(settings, where, tag, folder)
        )


def _push(settings: Settings, where: str, tag: str, folder: Path) -> str:
    found = manifest.parse((folder / manifest.NAME).read_text())
    target = reference.parse(f"{where}:{tag}")
    with sites.readable(settings), sites.writing(settings, target.host) as env:
        pushed = store.push(target, folder, found, store.architecture(found), env)
        store.verified(replace(pushed, tag=tag), env)
    say(f"Read back and compared: every byte is that of {folder}.")
    return str(pushed)


def _whole(folder: Path, target: Target) -> Manifest:
    """The MANIFEST of a wheelhouse that is exactly the set of its key."""
    wrong = house.faults(folder, target)
    found = manifest.read(folder)
    if wrong or not found:
        raise WheelsRefused(
            f"{folder} is not the wheel set {target.wheel_set.name}: {'; '.join(wrong)}.",
            f"nox -s wheels -- --set {target.wheel_set.name} makes it.",
        )
    return found


def verify(settings: Settings, what: str) -> None:
    """Read every byte of a set and say whether it is whole.

    Args:
        what: a folder; a reference by tag or digest; or an address with :// for fsspec.

    Raises:
        WheelsRefused: says each thing that is wrong.
    """
    if "://" in what:
        found = files.verified(what)
    elif Path(what).is_dir():
        found = _folder(Path(what))
    else:
        target = reference.parse(what)
        with sites.asking(settings, store.holder()) as accesses:
            found = accesses(target.host).ask(partial(store.verified, target))[0].manifest
    say(f"{what} is whole: " + " ".join(f"{name}={value}" for name, value in found.key.items()))
    for wheel in found.wheels:
        say(f"    {wheel.name}, {size(wheel.size)}, sha256 {wheel.sha256}")


def _folder(folder: Path) -> Manifest:
    found = manifest.read(folder)
    wrong = manifest.faults(folder, found) if found else [f"there is no {manifest.NAME}"]
    if not found or wrong:
        raise WheelsRefused(f"{folder}: {'; '.join(wrong)}.", "make or fetch the set again.")
    return found


def show(settings: Settings) -> None:
    """Print the published sets: reference by digest, size, key."""
    where = store.repository(settings)
    with sites.asking(settings, store.holder()) as accesses:
        found = accesses(where.host).ask(partial(store.listed, where))[0]
    if not found:
        say(f"{where.repository} holds no wheel set.")
    for one in found:
        print(one.reference)
        say(
            f"    {size(one.size)}: "
            + " ".join(f"{name}={value}" for name, value in one.manifest.key.items())
        )
