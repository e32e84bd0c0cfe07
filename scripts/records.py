"""The record of a build: what was built, seen and decided, one JSON file a build.

It is written before the job is submitted and again after each thing that is learned, each time whole
and by one rename. A crash leaves the last state; two builds have two files.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scripts import shape
from scripts.cache import locked
from scripts.errors import InputError, RegistryError

SCHEMA = 1
RECORD = {
    **{"id!": str, "image!": str, "state!": str, "created!": str, "error": str, "tag": str},
    "pins": {str: str},
    "result": {
        "reference!": str,
        "digest!": str,
        "largest": int,
        "total": int,
        "layers": list,
        "labels": dict,
    },
    "verified": [{"verdict!": str, "reference": str, "digest!": str, "checks": list, "read": dict}],
    "smoked": [{"verdict!": str, "digest!": str}],
}
"""What everybody who reads a record relies on."""


def now() -> str:
    """The time in UTC, to the second, as 2026-01-02T03:04:05Z."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Record:
    """One build's record. `data` is what the file holds; `update` writes it."""

    path: Path
    data: dict[str, Any]

    @property
    def id(self) -> str:
        """The name of the build, which is the name of its job."""
        return self.path.stem

    @property
    def built(self) -> bool:
        """Whether this is a build, not an image that was only looked at."""
        return bool(self.data["state"] != "seen")

    def update(self, **changes: object) -> None:
        """Merge changes into the record and write it, whole and durable, in one rename."""
        self.data = {**self.data, **changes}
        # Of this process: two that wrote one file would take it from each other.
        part = self.path.with_suffix(f".{os.getpid()}.part")
        with part.open("w") as file:
            file.write(json.dumps(self.data))
            file.flush()
            os.fsync(file.fileno())
        part.rename(self.path)

    def add(self, name: str, entry: Mapping[str, Any]) -> None:
        """Append an entry to a list of the record (what was verified, what was run), the newest last.

        Others may have written the record since it was read: theirs stays.
        """
        with locked(self.path.with_suffix(".lock")):
            self.data = _read(self.path).data
            self.update(**{name: [*self.data.get(name, []), entry]})


def name(task: str, commit: str) -> str:
    """A name for a build and its job: unique, at most 63 characters of [a-z0-9-]."""
    return f"{task}-{commit[:12]}-{datetime.now(UTC):%m%d-%H%M%S}-{secrets.token_hex(2)}"


def create(folder: Path, image: str, build: str, **facts: object) -> Record:
    """Begin the record of a build, in `<folder>/<image>/<build>.json`."""
    target = folder / image
    target.mkdir(parents=True, exist_ok=True)
    record = Record(target / f"{build}.json", {})
    record.update(
        **{"schema": SCHEMA, "id": build, "image": image, "created": now(), "state": "planned", **facts}
    )
    return record


def seen(folder: Path, image: str, task: str, **facts: object) -> Record:
    """Begin the record of an image that was built elsewhere: what is learned of it has a place then."""
    return create(folder, image, name(task, "seen"), task=task, state="seen", **facts)


def load(folder: Path, image: str = "*", build: str = "") -> Record:
    """The record of that name, or of the newest build of the image (or of all images).

    Raises:
        InputError: there is none.
    """
    found = [record for record in _all(folder, image) if record.id == build or (not build and record.built)]
    what = f"build {build or 'at all'}" + ("" if image == "*" else f" of {image}")
    return _newest(found, f"No {what} is on record in {folder}.")


def pushed(folder: Path, image: str) -> Record:
    """The record of the newest build of an image that was pushed.

    Raises:
        InputError: there is none.
    """
    return _newest(all_pushed(folder, image), f"No pushed build of {image} is on record in {folder}.")


def all_pushed(folder: Path, image: str) -> list[Record]:
    """The records of the builds of an image that were pushed."""
    return [record for record in _all(folder, image) if record.built and record.data.get("result")]


def newest_first(folder: Path, image: str) -> list[Record]:
    """All records of an image in a folder."""
    return sorted(_all(folder, image), key=_age, reverse=True)


def unfinished(folder: Path, image: str, *, tag: str) -> list[Record]:
    """The records of moves of a tag that are not done, since the last one that is; the oldest first."""
    found = sorted((one for one in _all(folder, image) if one.data.get("tag") == tag), key=_age)
    done = [number for number, record in enumerate(found, 1) if record.data["state"] == "done"]
    return found[max(done, default=0) :]


def of_digest(folder: Path, image: str, digest: str) -> Record | None:
    """The newest record of an image by its digest, a build's before any other."""
    found = [
        record for record in _all(folder, image) if (record.data.get("result") or {}).get("digest") == digest
    ]
    return _newest([record for record in found if record.built] or found, "") if found else None


def document(record: Record) -> bytes:
    """A record as it travels, the same bytes for the same record. Its argv holds paths and stays here."""
    travels = {name: value for name, value in record.data.items() if name != "argv"}
    return json.dumps(travels, indent=2).encode()


def of_document(content: bytes) -> dict[str, Any]:
    """What a record that travelled says.

    Raises:
        RegistryError: it is no record, or one of a schema that is not known here.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as broken:
        raise RegistryError("The record is not JSON.", "attach it again.") from broken
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise RegistryError(f"The record is of schema {schema}, not {SCHEMA}.", "upgrade this tool.")
    shape.check("The record", data, RECORD)
    found: dict[str, Any] = data
    return found


def _all(folder: Path, image: str) -> list[Record]:
    return [_read(path) for path in folder.glob(f"{image}/*.json")]


def _read(path: Path) -> Record:
    try:
        return Record(path, of_document(path.read_bytes()))
    except RegistryError as damaged:
        raise InputError(
            f"{path} cannot be read: {damaged.what}", "move it away, or upgrade this tool."
        ) from damaged


def _newest(found: list[Record], otherwise: str) -> Record:
    if not found:
        raise InputError(otherwise, "inv build.* makes one.")
    return max(found, key=_age)


def _age(record: Record) -> tuple[str, int]:
    return record.data["created"], record.path.stat().st_ctime_ns
