"""Which image a task is about: what a person named, or the last build on record."""

from __future__ import annotations

from dataclasses import dataclass

from scripts import records, sites
from scripts.catalogue import Image
from scripts.errors import InputError
from scripts.records import Record
from scripts.registry import reference
from scripts.registry.reference import Reference
from scripts.settings import Settings


@dataclass(frozen=True)
class Target:
    """An image to look at, and the build on record that it was named by, if it was."""

    reference: Reference
    record: Record | None = None


def named(settings: Settings, image: Image, text: str | None) -> Target:
    """The image of a tag, a digest or a whole reference; None: what the last pushed build on record gave.

    Raises:
        InputError: the text is not a reference, or nothing that was pushed is on record.
    """
    if text is None:
        record = records.pushed(settings.records, image.name)
        return Target(reference.parse(record.data["destination"]), record)
    if not text:
        raise InputError("An empty text names no image.", "give a tag, a digest or a whole reference.")
    repository = sites.repository(settings, image)
    if text.startswith("sha256:"):
        return Target(reference.parse(f"{repository}@{text}"))
    if "/" in text:
        return Target(reference.parse(text))
    return Target(reference.parse(f"{repository}:{text.removeprefix(':')}"))
