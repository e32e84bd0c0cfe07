"""Wheel sets in a registry. The tag of each is `wheels-` and the sha256 of its MANIFEST: it holds one set."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from scripts import catalogue, shape, sites
from scripts.catalogue import Image
from scripts.errors import Absent, InputError, WheelsRefused
from scripts.progress import say, step
from scripts.registry import blobs, crane, image, reference
from scripts.registry.crane import Env
from scripts.registry.reference import Reference
from scripts.settings import Settings
from scripts.wheels import layout, manifest
from scripts.wheels.manifest import Entry, Manifest
from scripts.wheels.sets import ROOT

PREFIX = "wheels-"
LABEL = "org.iris-images.wheels.manifest"
"""The text of MANIFEST, in the image's configuration: to find a set costs one small blob."""
PUSH_SECONDS = 3600.0


@dataclass(frozen=True)
class Published:
    """A set in a registry: by digest, and what its MANIFEST says."""

    reference: Reference
    tag: str
    manifest: Manifest
    size: int


def holder() -> Image:
    """The image that takes a prebuilt set: sets lie below its repository."""
    return next(image for image in catalogue.load(ROOT).values() if image.wheels)


def repository(settings: Settings) -> Reference:
    """Where sets are published: `wheels` below the repository of the image that takes them."""
    return reference.parse(f"{sites.repository(settings, holder())}/wheels")


def tag_of(text: bytes) -> str:
    """The tag of the set with that MANIFEST."""
    return PREFIX + hashlib.sha256(text).hexdigest()


def files(house: Path, found: Manifest) -> list[Path]:
    """The files of a set, the wheels first: the smallest and newest layers come last."""
    names = sorted(wheel.name for wheel in found.wheels)
    return [house / name for name in (*names, manifest.SUMS, manifest.NAME)]


def push(target: Reference, house: Path, found: Manifest, architecture: str, env: Env | None) -> Reference:
    """Push a set under its tag, unless it is there; returns it by digest. A tag is never overwritten.

    Raises:
        WheelsRefused: the tag holds something else.
        CredentialError, RegistryError: the registry did not take it.
    """
    text = (house / manifest.NAME).read_text()
    with TemporaryDirectory(prefix=".publish-", dir=house.parent) as folder:
        digest = layout.write(Path(folder), files(house, found), architecture, {LABEL: text})
        there = _digest(target, env)
        if there not in ("", digest):
            raise WheelsRefused(
                f"{target} holds something else: {there}, not {digest}.",
                "nothing was pushed; look at it with crane manifest, and remove it if nobody pins it.",
            )
        if not there:
            with step(f"pushing {target}"):
                crane.ask(["push", folder, str(target)], env=env, timeout=PUSH_SECONDS)
    return target.at(digest)


def _digest(target: Reference, env: Env | None) -> str:
    try:
        return crane.digest(target, env=env)
    except Absent:
        return ""


def look(target: Reference, env: Env | None) -> Published:
    """What a published set is, from its manifest and its configuration.

    Raises:
        WheelsRefused: it is no published wheel set, or its tag is not that of its MANIFEST.
        Absent, CredentialError, RegistryError: see `crane.digest`.
    """
    document = crane.manifest(target, env=env)
    pinned = target.at(document.digest)
    if image.kind_of(document) in image.INDEXES:
        raise WheelsRefused(f"{target} is an index, no wheel set.", "name a set: inv wheels.list.")
    shape.check(f"The manifest of {target}", document.data, shape.MANIFEST)
    config = crane.blob(target.at(document.data["config"]["digest"]), env=env)
    shape.check(f"The configuration of {target}", config, shape.CONFIG)
    text = ((config.get("config") or {}).get("Labels") or {}).get(LABEL, "")
    if not text or target.tag not in ("", tag_of(text.encode())):
        raise WheelsRefused(f"{target} is not the wheel set that its tag names.", "publish it again.")
    size = sum(layer["size"] for layer in document.data["layers"])
    return Published(pinned, tag_of(text.encode()), manifest.parse(text), size)


def listed(where: Reference, env: Env | None) -> list[Published]:
    """The sets of a repository; none where there is no repository."""
    try:
        names = crane.tags(where, env=env)
    except Absent:
        return []
    found = (_known(replace(where, tag=name), env) for name in names if name.startswith(PREFIX))
    return [one for one in found if one]


def _known(target: Reference, env: Env | None) -> Published | None:
    """What a tag is; None, and a line that says so: something else than a set of ours."""
    try:
        return look(target, env)
    except WheelsRefused as other:
        say(f"left out: {other.what}")
        return None


def verified(target: Reference, env: Env | None) -> Published:
    """Read every byte of a published set and compare it with its MANIFEST. Nothing is written to disk.

    Raises:
        WheelsRefused: says each thing that is wrong.
        Damaged, CommandTimeout, RegistryError: the registry did not give the bytes of a digest.
    """
    found = look(target, env)
    layers = crane.manifest(found.reference, env=env).data["layers"]
    held: dict[str, Entry] = {}
    heads: dict[str, bytes] = {}
    for layer in layers:
        with step(f"reading {layer.get('annotations', {}).get(layout.TITLE, layer['digest'])}"):
            entry, head = _held(found.reference.at(layer["digest"]), layer["size"], env)
        held[entry.name], heads[entry.name] = entry, head
    wrong = faults(found.manifest, held, heads)
    own = heads.get(manifest.NAME, b"")
    if tag_of(own) != found.tag:
        wrong.append(f"{manifest.NAME} is not the one of its tag and label")
    if wrong:
        raise WheelsRefused(f"{found.reference}: {'; '.join(wrong)}.", "publish the set again.")
    return found


def _held(blob: Reference, size: int, env: Env | None) -> tuple[Entry, bytes]:
    try:
        with blobs.opened(blob, size, env=env) as stream:
            buffered = io.BufferedReader(stream, blobs.CHUNK)  # type: ignore[type-var]
            name, sha256, length, head = layout.content(cast("io.BufferedReader", buffered))
            return Entry(name, sha256, length), head
    except tarfile.TarError as broken:
        raise WheelsRefused(f"{blob} is no layer of a wheel set: {broken}.") from broken


def faults(wanted: Manifest, held: dict[str, Entry], heads: dict[str, bytes]) -> list[str]:
    """What keeps some files from being the set of a MANIFEST."""
    names = {wheel.name for wheel in wanted.wheels} | {manifest.NAME, manifest.SUMS}
    sums = heads.get(manifest.SUMS, b"").decode("utf-8", "replace") == manifest.sums(wanted)
    return [
        *([] if sums else [f"{manifest.SUMS} does not agree with {manifest.NAME}"]),
        *(f"{name} is missing" for name in sorted(names - held.keys())),
        *(f"{name} is not of the set" for name in sorted(held.keys() - names)),
        *(
            f"{wheel.name} {told}"
            for wheel in wanted.wheels
            if wheel.name in held and (told := fault(wheel, held[wheel.name], heads[wheel.name]))
        ),
    ]


def fault(wanted: Entry, found: Entry, head: bytes) -> str:
    """What a file is in place of the wheel that was wanted; empty: it is that wheel."""
    if (wanted.sha256, wanted.size) == (found.sha256, found.size):
        return "" if head.startswith(b"PK\3\4") else f"is {kind(head)}"
    size = f"{found.size} bytes" if found.size == wanted.size else f"{found.size} bytes of {wanted.size}"
    return f"is {kind(head)} ({size}, sha256 {found.sha256}, wanted {wanted.sha256})"


def kind(head: bytes) -> str:
    """What a file begins like, in words."""
    start = head[:512].lstrip().lower()
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not a wheel"
    if start.startswith((b"<!doctype", b"<html")):
        return "a page of HTML, not a wheel"
    return "another or a damaged wheel" if head.startswith(b"PK\3\4") else "no wheel"


def by_digest(text: str) -> Reference:
    """A set as a configuration names it.

    Raises:
        InputError: no digest, or one that was cut short: a tag could give something else tomorrow.
    """
    found = reference.parse(text)
    if not found.digest:
        raise InputError(f"{text} names no digest.", "inv wheels.find prints the reference by digest.")
    return found


def architecture(found: Manifest) -> str:
    """amd64 or arm64, by the PLATFORM of the key."""
    known = {"linux_x86_64": "amd64", "linux_aarch64": "arm64"}
    platform = found.key.get("PLATFORM", "")
    if platform not in known:
        raise WheelsRefused(f"{manifest.NAME} has the PLATFORM {platform or 'nothing'}.")
    return known[platform]
