"""Which image a task is about: what a person named, or the last build on record."""

from __future__ import annotations

from dataclasses import dataclass

from scripts import records, sites
from scripts.catalogue import Image
from scripts.errors import InputError
from scripts.records import Record
from scripts.registry import reference
from scripts.registry.image import Named
from scripts.registry.reference import Reference
from scripts.settings import Settings


@dataclass(frozen=True)
class Target:
    """An image to look at, and the build on record that it was named by, if it was."""

    reference: Reference
    record: Record | None = None


def record(settings: Settings, image: Image, named: Named) -> Record | None:
    """The record of an image of this machine; one that is not on record gets one where it can be run.

    Its digest is the one that the reference gave: of an index, the index's.
    """
    digest = named.reference.digest
    if (known := records.of_digest(settings.records, image.name, digest)) or not named.image:
        return known
    result = named.image.facts() | {"digest": digest}
    return records.seen(settings.records, image.name, image.task, result=result)


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


def pinned(settings: Settings, image: Image, text: str | None) -> Target:
    """The same, but of the last pushed build the digest: somebody may have moved its tag since."""
    found = named(settings, image, text)
    if not found.record:
        return found
    result = found.record.data["result"]
    return Target(reference.parse(result["reference"]).at(result["digest"]), found.record)
