"""The record of a build: what was built, seen and decided, one JSON file a build.

It is written before the job is submitted and again after each thing that is learned, each time whole
and by one rename. A crash leaves the last state; two builds have two files.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scripts.errors import InputError

SCHEMA = 1


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

    def update(self, **changes: object) -> None:
        """Merge changes into the record and write it, whole and durable, in one rename."""
        self.data = {**self.data, **changes}
        part = self.path.with_suffix(".part")
        with part.open("w") as file:
            json.dump(self.data, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        part.rename(self.path)


def name(task: str, commit: str) -> str:
    """A name for a build and its job: unique, at most 63 characters of [a-z0-9-]."""
    return f"{task}-{commit[:12]}-{datetime.now(UTC):%m%d-%H%M%S}-{secrets.token_hex(2)}"


def create(folder: Path, image: str, build: str, **facts: object) -> Record:
    """Begin the record of a build, in `<folder>/<image>/<build>.json`."""
    target = folder / image
    target.mkdir(parents=True, exist_ok=True)
    record = Record(target / f"{build}.json", {})
    record.update(schema=SCHEMA, id=build, image=image, created=now(), state="planned", **facts)
    return record


def load(folder: Path, image: str = "*", build: str = "") -> Record:
    """The record of that build, or the newest of the image (or of all images).

    Raises:
        InputError: there is none.
    """
    found = [record for record in _all(folder, image) if not build or record.id == build]
    what = f"build {build or 'at all'}" + ("" if image == "*" else f" of {image}")
    return _newest(found, f"No {what} is on record in {folder}.")


def pushed(folder: Path, image: str) -> Record:
    """The record of the newest build of an image that was pushed.

    Raises:
        InputError: there is none.
    """
    found = [record for record in _all(folder, image) if "result" in record.data]
    return _newest(found, f"No pushed build of {image} is on record in {folder}.")


def of_digest(folder: Path, image: str, digest: str) -> Record | None:
    """The newest record of a build that gave this digest."""
    found = [
        record for record in _all(folder, image) if record.data.get("result", {}).get("digest") == digest
    ]
    return _newest(found, "") if found else None


def _all(folder: Path, image: str) -> list[Record]:
    return [Record(path, json.loads(path.read_text())) for path in folder.glob(f"{image}/*.json")]


def _newest(found: list[Record], otherwise: str) -> Record:
    if not found:
        raise InputError(otherwise, "inv build.* makes one.")
    return max(found, key=lambda record: (record.data["created"], record.path.stat().st_ctime_ns))
