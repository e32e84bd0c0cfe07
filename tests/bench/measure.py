"""What every measurement needs: timings, peak memory, servers, and a line that shows a ratio."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.local.place import Place, processes


def show(what: str, ours: float, peer: str, theirs: float, unit: str) -> None:
    """Print a measurement as a ratio to its peer."""
    print(f"{what}: {ours:.2f} {unit}; {peer}: {theirs:.2f} {unit}; ratio {ours / theirs:.2f}", flush=True)


def timed(act: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began = time.monotonic()
    act()
    return time.monotonic() - began


def median(act: Callable[[], object], repeats: int) -> float:
    """The median of so many timings, in seconds."""
    return statistics.median(timed(act) for _ in range(repeats))


@contextmanager
def servers(state: Path) -> Iterator[Place]:
    """A place whose servers run for the whole block."""
    place = Place(state)
    place.inv("local.up")
    try:
        yield place
    finally:
        place.inv("local.down")


@contextmanager
def peak_memory(program: str) -> Iterator[list[int]]:
    """The highest VmHWM in bytes of a process whose command line begins with a program; sampled."""
    peak, done = [0], threading.Event()

    def sample() -> None:
        while not done.wait(0.2):
            for pid, line in processes().items():
                if line.startswith(program):
                    peak[0] = max(peak[0], high_water(pid))

    thread = threading.Thread(target=sample)
    thread.start()
    yield peak
    done.set()
    thread.join()


def high_water(pid: int) -> int:
    """The most memory that a process ever had, in bytes; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
