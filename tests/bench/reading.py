"""One file out of a many-layer image, against `crane export REF - | tar -xO PATH`; memory as layers grow."""

from __future__ import annotations

import io
import os
import random
import statistics
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts import command
from scripts.local import registry, services
from scripts.registry import files, image
from scripts.registry.content import Rule
from scripts.registry.files import Reading, Wanted
from scripts.registry.reference import parse
from tests.bench.measure import high_water, show, timed
from tests.conftest import CACHE
from tests.local.faulty_proxy import faulty
from tests.local.place import ROOT

LAYERS, FILES, FILE_BYTES = 48, 400, 7500
REPEATS = 5
MB = 1_000_000
SMALL_MB, BIG_MB = 50, 2000
RANDOM_MB = 5
"""Of so many megabytes one is random and the others are zeros, so that the large layer takes little disk."""
SECONDS = 600


def run(work: Path) -> None:
    """Run every measurement of reading and print one line each."""
    with local_registry(work / "state") as port:
        against_export(port, many_layers(port, work))
        memory_as_layers_grow(port, work)


@contextmanager
def local_registry(state: Path) -> Iterator[int]:
    """A registry of this measurement's own; yields its port."""
    yield registry.up(CACHE, state).port
    services.down(state, "registry")


def file_name(layer: int, number: int = FILES // 2) -> str:
    """A file of a layer, by default one in the middle."""
    return f"opt/env/lib/python3.12/site-packages/package_{layer}_{number // 20}/module_{number}.py"


def add(tar: tarfile.TarFile, path: str, content: bytes) -> None:
    """Add a regular file."""
    info = tarfile.TarInfo(path)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def many_layers(port: int, work: Path) -> str:
    """Push an image of 48 layers, each of 400 files and 3 MB that do not compress."""
    words: list[str | Path] = []
    for layer in range(LAYERS):
        path = work / f"{layer}.tar"
        with tarfile.open(path, "w") as tar:
            for number in range(FILES):
                add(tar, file_name(layer, number), os.urandom(FILE_BYTES))
        words += ["--new_layer", path]
    return push(f"127.0.0.1:{port}/bench/many:1", *words)


def push(reference: str, *words: str | Path) -> str:
    """Push an image of layers that `words` give."""
    command.output(["crane", "append", *words, "--new_tag", reference], timeout=SECONDS)
    return reference


def find(reference: str, path: str, *rules: Rule) -> Reading:
    """Read an image's manifest, then one file."""
    parsed = parse(reference)
    found = image.look(parsed, "amd64").image
    return files.read(parsed, found.layers if found else (), [Wanted(f"/{path}", rules)])


def export(reference: str, path: str) -> None:
    """What a person would do with crane and tar."""
    line = f"crane export {reference} - | tar -xO {path} > /dev/null 2>&1"
    command.run(["bash", "-c", line], timeout=SECONDS, ok=None)


def exported_bytes(port: int, reference: str) -> int:
    """What the registry sends for an export."""
    with faulty(port, lambda *_: None) as proxy:
        export(reference.replace(f":{port}/", f":{proxy.port}/"), file_name(0))
        return proxy.sent


def against_export(port: int, reference: str) -> None:
    """A file in the top layer, in the middle, at the bottom, and one that is absent: bytes and time."""
    all_bytes = exported_bytes(port, reference) / MB
    for place, layer in {"top": LAYERS - 1, "middle": LAYERS // 2, "bottom": 0, "nowhere": LAYERS}.items():
        path, ours, theirs, fetched = file_name(layer), [], [], 0
        for _ in range(REPEATS):
            ours.append(timed(lambda path=path: find(reference, path)))
            theirs.append(timed(lambda path=path: export(reference, path)))
            fetched = find(reference, path).fetched
        show(f"file at the {place}, bytes", fetched / MB, "crane export | tar", all_bytes, "MB")
        times = statistics.median(ours), statistics.median(theirs)
        show(f"file at the {place}, time", times[0], "crane export | tar", times[1], "s")


def memory_as_layers_grow(port: int, work: Path) -> None:
    """The peak of a process that reads a file as large as its layer, with a rule about its lines."""
    small, big = (peak(one_layer(port, work, size)) / MB for size in (SMALL_MB, BIG_MB))
    show(f"peak memory, layer of {BIG_MB} MB", big, f"of {SMALL_MB} MB", small, "MB")


def one_layer(port: int, work: Path, megabytes: int) -> str:
    """Push an image of one layer with one file of that size."""
    path = work / "layer.tar"
    info = tarfile.TarInfo("big")
    info.size = megabytes * MB
    with path.open("wb") as out:
        out.write(info.tobuf())
        for start in range(0, megabytes, RANDOM_MB):
            out.seek(tarfile.BLOCKSIZE + start * MB)
            out.write(random.Random(start).randbytes(MB))  # noqa: S311
        out.truncate(-(-(info.size + 3 * tarfile.BLOCKSIZE) // tarfile.RECORDSIZE) * tarfile.RECORDSIZE)
    reference = push(f"127.0.0.1:{port}/bench/one:{megabytes}", "--new_layer", path)
    path.unlink()
    return reference


def peak(reference: str) -> int:
    """The most memory, in bytes, of a process of its own that reads /big."""
    return int(command.output([sys.executable, "-m", __name__, reference], timeout=SECONDS, cwd=ROOT))


if __name__ == "__main__":
    [answer] = find(sys.argv[1], "big", Rule("x.*y.*z")).found
    assert answer.kind == "file"
    print(high_water(os.getpid()))
