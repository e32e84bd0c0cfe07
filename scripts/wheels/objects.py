"""What a compile of hours shows and keeps: how many objects of about how many, the time, and a log."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from scripts import command
from scripts.errors import WheelsRefused
from scripts.progress import console, say, step

COUNT = re.compile(r"\s*\[(\d+)/(\d+)\]")
COMPILE_SECONDS = 48 * 3600.0
FOREIGN = "Guessing wheel URL"
"""What flash-attn says before it downloads somebody's wheel in place of a compile."""


@dataclass
class Objects:
    """Reads the output of a build line by line.

    Build systems count as `[done/total]`; the total changes where one of them starts another.

    Attributes:
        enough: after so many objects this process is interrupted, as by Ctrl-C; 0: never.
    """

    log: TextIO
    news: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    tenth: int = 0
    enough: int = 0

    def line(self, text: str) -> None:
        """Keep a line in the log, and show the count that it holds."""
        self.log.write(f"{text}\n")
        self.log.flush()
        if count := COUNT.match(text):
            self._count(int(count[1]), max(1, int(count[2])))

    def _count(self, done: int, total: int) -> None:
        told = progress(done, total, time.monotonic() - self.began)
        self.news(told)
        tenth = 10 * done // total
        if tenth != self.tenth and not console.is_terminal:  # where no bar moves
            say(f"    {told}")
        self.tenth = tenth
        if self.enough and done >= self.enough:
            os.kill(os.getpid(), signal.SIGINT)


def progress(done: int, total: int, seconds: float) -> str:
    """One line: the count, the time that passed, and the time that is left if the rest is alike."""
    left = seconds / done * (total - done) if done else 0
    return f"{done} of about {total} objects, {clock(seconds)} gone, about {clock(left)} to go"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, as 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def run(argv: command.Argv, env: Mapping[str, str | None], log: Path, name: str, *, enough: int = 0) -> None:
    """Run a build to its end, its output in the log, its count before a person's eyes; `enough`: see Objects.

    Raises:
        WheelsRefused: the build downloads a wheel.
        CommandFailed, CommandTimeout.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    say(f"    log: {log}")
    began = log.stat().st_size if log.exists() else 0
    with log.open("a") as file, step(name) as news:
        objects = Objects(file, news, enough=enough)
        command.run(argv, timeout=COMPILE_SECONDS, env=env, on_line=objects.line, next_step=f"see {log}.")
    with log.open() as file:
        file.seek(began)
        if FOREIGN in file.read():
            raise WheelsRefused(f"{name}: the build looked for somebody's wheel to download (see {log}).")
