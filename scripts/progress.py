"""What a person sees while something takes long: a name, a bar, the time; plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

console = Console(stderr=True, highlight=False, soft_wrap=True)
"""Everything that is said to a person. Standard output is kept for answers (digests, JSON)."""

_lock = threading.Lock()
_bars = Progress(
    SpinnerColumn(),
    TextColumn("{task.description}"),
    BarColumn(20),
    TimeElapsedColumn(),
    TextColumn("[dim]{task.fields[news]}"),
    console=console,
    transient=True,
)


@contextmanager
def step(name: str) -> Iterator[Callable[[str], None]]:
    """Show a step that takes more than a moment; yields a function that shows its latest news.

    Steps of several threads may run at once: each has its own line.
    """
    began = time.monotonic()
    if console.is_terminal:
        with _bar(name) as news:
            yield news
    else:
        say(f"... {name}")
        yield lambda news: None
    say(f"    {name}: {time.monotonic() - began:.0f} s")


def say(text: str) -> None:
    """Print a line for a person, as it is."""
    console.print(text, markup=False)


def visible(text: str) -> str:
    """The text with every character that would move a terminal's cursor or colour it written out."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def size(bytes_: int) -> str:
    """A size for people: GB (10^9) and bytes."""
    return f"{bytes_ / 1e9:.3f} GB ({bytes_:,} bytes)"


@contextmanager
def _bar(name: str) -> Iterator[Callable[[str], None]]:
    with _lock:
        if not _bars.tasks:
            _bars.start()
        task = _bars.add_task(name, total=None, news="")
    try:
        yield lambda news: _bars.update(task, news=news.strip()[:80].replace("[", r"\["))
    finally:
        with _lock:
            _bars.remove_task(task)
            if not _bars.tasks:
                _bars.stop()
