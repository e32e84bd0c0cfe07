"""What an image must be: by what a person asked, the record, the tag, and the Dockerfile of the commit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from scripts import records
from scripts import source as checkouts
from scripts.catalogue import Image
from scripts.errors import SourceError
from scripts.pins import dockerfile
from scripts.records import Record
from scripts.registry.checks import PIN_LABEL, Expected
from scripts.registry.reference import Reference

IN_TAG = re.compile(r"-([0-9a-f]{40}(?:-dirty)?)(?:-arm64)?$")
LABELLED = re.compile(rf'({re.escape(PIN_LABEL)}[a-z0-9-]+)="?\$\{{(\w+)\}}')


def label(pin: str) -> str:
    """The label that holds a pin: HARBOR_COMMIT is org.iris-images.pin.harbor-commit."""
    return PIN_LABEL + pin.lower().replace("_", "-")


def architecture(asked: str, reference: Reference, record: Record | None, default: str) -> str:
    """What the image must be for: as asked, else as its record says, else as its tag does."""
    if asked or record:
        return asked or str(record and record.data.get("architecture", default))
    return "arm64" if reference.tag.endswith("-arm64") else default


def revision(context: Path, asked: str, reference: Reference, record: Record | None) -> tuple[str, str]:
    """The commit that the image must be of, and where that is known from; two empty words: nobody said.

    Raises:
        SourceError: the commit that was asked for is not in the checkout.
    """
    if asked:
        name, dirty = asked.removesuffix("-dirty"), asked.endswith("-dirty")
        return checkouts.resolve(context, name) + "-dirty" * dirty, "--commit"
    if record and "inputs" in record.data:
        return record.data["inputs"]["GITSHA"], f"record {record.id}"
    if found := IN_TAG.search(reference.tag):
        return found[1], "the tag"
    return "", ""


@cache
def dockerfile_at(context: Path, commit: str, path: str) -> str:
    """The Dockerfile of a commit, which never changes.

    Raises:
        SourceError: the checkout does not have it.
    """
    return checkouts.at(context, commit, path)


def of(
    context: Path, image: Image, record: Record | None, commit: tuple[str, str], architecture: str, seen: str
) -> Expected:
    """All that is expected of an image.

    Args:
        commit: see `revision`.
        seen: the revision that the image says it is of: its pins are compared when nobody said which.
    """
    wanted, source = commit
    pins, where = _pins(context, image, wanted or seen, record)
    total = _total_before(record) if record else 0
    return Expected(architecture, wanted, source, pins, where, total)


def _pins(
    context: Path, image: Image, revision: str, record: Record | None
) -> tuple[Mapping[str, str] | None, str]:
    commit, dirty = revision.removesuffix("-dirty"), revision.endswith("-dirty")
    try:
        text = dockerfile_at(context, commit, image.dockerfile)
    except SourceError as failure:
        return None, failure.what
    values = dockerfile.pins(text)
    if record and "pins" in record.data:
        # What the site gave in place of the Dockerfile's own, and of a dirty checkout all of them.
        given = set(record.data["inputs"]) | set(_build_args(record.data["inputs"]))
        recorded = record.data["pins"]
        values |= {name: recorded[name] for name in recorded if dirty or name in given}
    pins = {key: values[name] for key, name in LABELLED.findall(text) if name in values}
    return pins, f"{image.dockerfile} at {commit}"


def _build_args(inputs: Mapping[str, Any]) -> dict[str, str]:
    lines = str(inputs.get("BUILD_ARGS", "")).splitlines()
    return dict(line.split("=", 1) for line in lines)


def _total_before(record: Record) -> int:
    """Bytes of the build before this one: same image, variant and architecture; 0: there is none."""
    same = ("variant", "architecture", "cluster")
    before = [
        other.data
        for other in records.all_pushed(record.path.parents[1], record.data["image"])
        if other.data["created"] < record.data["created"]
        and all(other.data.get(key) == record.data.get(key) for key in same)
    ]
    newest = max(before, key=lambda data: data["created"], default=None)
    return int(newest["result"]["total"]) if newest else 0
