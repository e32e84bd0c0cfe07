"""What a person sees while something takes long: a name, a spinner, the time; plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

console = Console(stderr=True, highlight=False, soft_wrap=True)
"""Everything that is said to a person. Standard output is kept for answers (digests, JSON)."""


@contextmanager
def step(name: str) -> Iterator[Callable[[str], None]]:
    """Show a step that takes more than a moment; yields a function that shows its latest news."""
    began = time.monotonic()
    if console.is_terminal:
        columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn()
        with Progress(
            *columns, TextColumn("[dim]{task.fields[news]}"), console=console, transient=True
        ) as bar:
            task = bar.add_task(name, total=None, news="")
            yield lambda news: bar.update(task, news=news.strip()[:80].replace("[", r"\["))
    else:
        console.print(f"... {name}", markup=False)
        yield lambda news: None
    console.print(f"    {name}: {time.monotonic() - began:.0f} s", markup=False)
