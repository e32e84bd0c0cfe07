"""MANIFEST: what a wheel set was compiled for, and the name, sha256, size and level of each of its wheels.

Lines of words NAME=value. Those that begin with WHEEL= are the wheels, in the order of their names; the
others are the key. Two sets with the same MANIFEST are the same bytes, so its sha256 stands for the set.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.errors import WheelsRefused

NAME, SUMS = "MANIFEST", "SHA256SUMS"
LISTS = ("TORCH_CUDA_ARCH_LIST",)
WORD = re.compile(r"""([A-Z0-9_]+)=("[^"]*"|'[^']*'|.*?)(?=\s+[A-Z0-9_]+=|\s*$)""")
"""NAME=value, to the next NAME= or the end of the line: a value may have blanks in it."""


@dataclass(frozen=True)
class Entry:
    """A wheel of the set.

    Attributes:
        name: of the file.
        sha256: 64 hexadecimal digits.
        size: bytes.
        level: the oldest platform that it loads on (manylinux_2_34_x86_64); empty: nobody looked.
    """

    name: str
    sha256: str
    size: int
    level: str = ""


@dataclass(frozen=True)
class Manifest:
    """The key (names and normalised values, in the order of the file) and the wheels."""

    key: dict[str, str]
    wheels: tuple[Entry, ...]


def normalised(name: str, value: str) -> str:
    """A value as it is compared: no quotes and no white space around it, an arch list in order."""
    value = value.strip().strip("\"'").strip()
    return ";".join(architectures(value)) if name in LISTS else value


def architectures(text: str) -> list[str]:
    """The architectures of a list with `;`, `,` or white space between them, each once, in order.

    `9.0a` stays apart from `9.0`, and `9.0+PTX` from both: each is other code.
    """
    found = {re.sub("ptx", "PTX", word, flags=re.IGNORECASE) for word in re.split(r"[;,\s]+", text) if word}
    return sorted(found, key=lambda word: ([int(digits) for digits in re.findall(r"\d+", word)], word))


def key_text(key: dict[str, str], layout: Sequence[Sequence[str]]) -> str:
    """The key's lines: the names of one line of the layout on one line."""
    return "".join(" ".join(f"{name}={key[name]}" for name in line) + "\n" for line in layout)


def text(manifest: Manifest, layout: Sequence[Sequence[str]]) -> str:
    """The whole file."""
    wheels = sorted(manifest.wheels, key=lambda entry: entry.name)
    return key_text(manifest.key, layout) + "".join(
        f"WHEEL={entry.name} SHA256={entry.sha256} SIZE={entry.size} LEVEL={entry.level}\n"
        for entry in wheels
    )


def parse(written: str) -> Manifest:
    """A MANIFEST as somebody wrote it: CRLF, quotes and another order are understood.

    Raises:
        WheelsRefused: a line that is none of its words.
    """
    key: dict[str, str] = {}
    wheels: list[Entry] = []
    for number, line in enumerate(written.splitlines(), 1):
        words = dict(WORD.findall(line.strip()))
        if line.strip() and not words:
            raise WheelsRefused(f"Line {number} of {NAME} is not NAME=value: {line!r}.")
        if "WHEEL" in words:
            wheels.append(_entry(words, number))
        else:
            key |= {name: normalised(name, value) for name, value in words.items()}
    return Manifest(key, tuple(wheels))


def differences(wanted: dict[str, str], found: dict[str, str]) -> list[str]:
    """The names whose values differ, each as one phrase; an absent one is `nothing`."""
    return [
        f"{name}: wanted {wanted.get(name, 'nothing')}, found {found.get(name, 'nothing')}"
        for name in dict.fromkeys((*wanted, *found))
        if wanted.get(name) != found.get(name)
    ]


def read(folder: Path) -> Manifest | None:
    """The MANIFEST of a wheelhouse; None where there is none: such a set is not finished.

    Raises:
        WheelsRefused: it is damaged.
    """
    path = folder / NAME
    return parse(path.read_text(errors="replace")) if path.exists() else None


def entry(path: Path) -> Entry:
    """The entry of a wheel, from its bytes; without its level."""
    with path.open("rb") as file:
        return Entry(path.name, hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)


def faults(folder: Path, manifest: Manifest) -> list[str]:
    """What keeps the folder from holding exactly the wheels of the manifest; every byte is read."""
    wanted = {wheel.name: wheel for wheel in manifest.wheels}
    there = {path.name: path for path in folder.glob("*.whl")}
    agrees = (folder / SUMS).exists() and (folder / SUMS).read_text(errors="replace") == sums(manifest)
    return [
        *([] if agrees else [f"{SUMS} does not agree with {NAME}"]),
        *(f"{name} is missing" for name in sorted(wanted.keys() - there.keys())),
        *(f"{name} is not of the set" for name in sorted(there.keys() - wanted.keys())),
        *(
            f"{name} does not have the size and sha256 of its line"
            for name in sorted(wanted.keys() & there.keys())
            if replace(wanted[name], level="") != entry(there[name])
        ),
    ]


def sums(manifest: Manifest) -> str:
    """SHA256SUMS: the same hashes, as sha256sum reads them."""
    return "".join(f"{wheel.sha256}  {wheel.name}\n" for wheel in manifest.wheels)


def write(folder: Path, manifest: Manifest, layout: Sequence[Sequence[str]]) -> None:
    """Write SHA256SUMS and then, as the last act and in one rename, MANIFEST."""
    _durable(folder / SUMS, sums(manifest))
    _durable(folder / NAME, text(manifest, layout))


def _durable(path: Path, content: str) -> None:
    part = path.with_name(f"{path.name}.part")
    with part.open("w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def _entry(words: dict[str, str], number: int) -> Entry:
    sha256, size = words.get("SHA256", ""), words.get("SIZE", "")
    if not re.fullmatch("[0-9a-f]{64}", sha256) or not size.isdigit():
        raise WheelsRefused(f"Line {number} of {NAME} has no whole SHA256 and SIZE for {words['WHEEL']}.")
    return Entry(words["WHEEL"], sha256, int(size), words.get("LEVEL", ""))
