"""A cache folder of things that take long to make: each is whole, or it is not there.

An entry is made in a folder of another name under a lock, and gets its own name in one rename, as
the last act. Whatever was interrupted is thrown away by the next who needs it.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def key(*inputs: str | bytes | Path) -> str:
    """Sixteen hexadecimal digits over the inputs in order; a path counts by its content."""
    digest = hashlib.sha256()
    for item in inputs:
        content = (
            item.read_bytes() if isinstance(item, Path) else item.encode() if isinstance(item, str) else item
        )
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:16]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file (made where it is missing); other processes wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def entry(folder: Path, name: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `<folder>/<name>-<key>`, made by `make(temporary folder)` when it is not there.

    Two processes that need the same entry make it once. Older entries of that name are kept: a
    colleague's checkout may use them.
    """
    target = folder / f"{name}-{key}"
    if target.is_dir():
        return target
    with locked(folder / f".{name}.lock"):
        if not target.is_dir():
            # A new name each time: children of a killed maker may still write into the old one.
            for left in folder.glob(f".{name}-{key}.*.part"):
                shutil.rmtree(left, ignore_errors=True)
            part = folder / f".{name}-{key}.{uuid.uuid4().hex[:8]}.part"
            part.mkdir()
            make(part)
            part.rename(target)
    return target
