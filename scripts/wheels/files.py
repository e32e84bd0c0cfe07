"""Wheel sets in folders that fsspec reaches: hf://datasets/…, s3://…, https://… (reading only), file:///….

fsspec does the work, with huggingface_hub or s3fs behind it. They are no dependencies of this project and are
imported only here. A set lies in a folder named by its tag, and its MANIFEST comes last.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import Any

from scripts.errors import Absent, RegistryError, ToolMissing, WheelsRefused
from scripts.progress import step
from scripts.wheels import manifest, store
from scripts.wheels.manifest import Entry, Manifest

CHUNK = 1 << 20


def publish(where: str, tag: str, house: Path, found: Manifest) -> str:
    """Copy a set to `<where>/<tag>/` and read it back; returns that address. Nothing is overwritten.

    Raises:
        ToolMissing: the package for such an address is not installed.
        WheelsRefused: something else is there; or what was read back differs.
    """
    system, root = _system(f"{where.rstrip('/')}/{tag}")
    address = f"{where.rstrip('/')}/{tag}"
    if system.exists(f"{root}/{manifest.NAME}"):
        verified(address)
        return address
    system.makedirs(root, exist_ok=True)
    for path in store.files(house, found):
        with step(f"copying {path.name}"):
            system.put_file(str(path), f"{root}/{path.name}")
    verified(address)
    return address


def verified(address: str) -> Manifest:
    """Read every byte of the set in that folder.

    Raises:
        Absent: there is no MANIFEST.
        WheelsRefused: says each thing that is wrong.
        RegistryError: the place does not answer.
    """
    system, root = _system(address)
    try:
        text = bytes(system.cat_file(f"{root}/{manifest.NAME}"))
        found = manifest.parse(text.decode("utf-8", "replace"))
        tag = root.rstrip("/").rpartition("/")[2]
        names = [manifest.NAME, manifest.SUMS, *(wheel.name for wheel in found.wheels)]
        read = [_read(system, root, name) for name in names if system.exists(f"{root}/{name}")]
    except FileNotFoundError as missing:
        raise Absent(f"{address} holds no {manifest.NAME}.", "check the address.") from missing
    except OSError as failure:
        raise RegistryError(f"{address} could not be read.", "try again.", f"  {failure}") from failure
    held = {entry.name: entry for entry, _ in read}
    wrong = store.faults(found, held, {entry.name: head for entry, head in read})
    if store.tag_of(text) != tag:
        wrong.append(f"the folder is not named by the sha256 of its {manifest.NAME}")
    if wrong:
        raise WheelsRefused(f"{address}: {'; '.join(wrong)}.", "publish the set again.")
    return found


def _read(system: Any, root: str, name: str) -> tuple[Entry, bytes]:  # noqa: ANN401
    digest, size, head = hashlib.sha256(), 0, b""
    with step(f"reading {name}"), system.open(f"{root}/{name}", "rb") as file:
        while chunk := file.read(CHUNK):
            head = head or chunk
            digest.update(chunk)
            size += len(chunk)
    return Entry(name, digest.hexdigest(), size), head


def _system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    protocol = address.partition("://")[0]
    try:
        found: tuple[Any, str] = importlib.import_module("fsspec").url_to_fs(address)
    except (ImportError, ValueError) as missing:
        raise ToolMissing(
            f"{protocol}:// needs a package that is not installed ({missing}).",
            "pip install 'iris-images[hub]' brings fsspec and what it needs.",
        ) from missing
    return found
