"""What a person sees of a build: the plan, its progress, its result."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scripts.iris.cli import JobState
from scripts.iris.watch_job_state import Update
from scripts.outcome import PHASE
from scripts.progress import console, say, size, visible
from scripts.registry.checks import Check, Result, Verdict

COLOURS = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}
LINE_WIDTH = 10_000
"""Of a table that is not for a terminal: nothing is folded, so that grep finds whole rows."""
KEPT_LINES = 400
SHOWN_LINES = 8


class Follower:
    """Shows a job while it runs and keeps its log: a live view on a terminal, plain lines elsewhere.

    Attributes:
        lines: the last lines of the log.
        phases: seconds by phase of the build script, in order.
        began: when its first phase began, by its own clock.
    """

    def __init__(self, job: str, log: Path) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.phases: dict[str, float] = {}
        self.began = ""
        self._id, self._marks = job, list[tuple[str, datetime]]()
        self._state, self._began = "", time.monotonic()
        self._log = log.open("w")
        self._live = (
            Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        )

    def __enter__(self) -> Follower:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
        self._log.close()

    def update(self, update: Update) -> None:
        """Take what is new of the job."""
        for line in update.lines:
            self._take(line.text)
        waits_for = update.pending_reason if update.state is JobState.PENDING else ""
        if (news := f"{update.state} {update.trouble or waits_for}".strip()) != self._state:
            self._state = news
            self._say(f"{self._id}: {news}")
        if self._live:
            self._live.update(self._picture(), refresh=True)

    def _take(self, line: str) -> None:
        self.lines.append(line)
        self._log.write(line + "\n")
        self._log.flush()
        self._say(line)
        if match := PHASE.search(line):
            self.began = self.began or match[2]
            self._mark(match[1], datetime.fromisoformat(match[2]))

    def _mark(self, phase: str, when: datetime) -> None:
        if self._marks:
            last, since = self._marks[-1]
            self.phases[last] = (when - since).total_seconds()
        self._marks.append((phase, when))

    def _say(self, line: str) -> None:
        if not self._live:
            say(line)

    def _picture(self) -> Group:
        phase = f"phase: {self._marks[-1][0]}  " if self._marks else ""
        head = f"{self._id}  {self._state}  {phase}{time.monotonic() - self._began:.0f} s"
        tail = [
            Text(line, style="dim", no_wrap=True, overflow="ellipsis")
            for line in list(self.lines)[-SHOWN_LINES:]
        ]
        return Group(Text(head, style="bold"), *tail)


def table(title: str, rows: dict[str, Any]) -> None:
    """Print names and values, a line each, as they are: to be read, and to be pasted."""
    width = max(map(len, rows))
    say(f"\n{title}")
    for name, value in rows.items():
        say(f"  {name:<{width}}  {value}")


def plan(facts: dict[str, Any], argv: str) -> None:
    """Print a plan: what will be built, from what, where to, and the exact command."""
    inputs, pins = facts["inputs"], facts["pins"]
    shown = {
        key: facts[key] for key in ("cluster", "destination", "commit", "dirty", "architecture", "variant")
    }
    shown |= {
        "executor": inputs["EXECUTOR_IMAGE"],
        "wheels": inputs.get("WHEELHOUSE") or inputs.get("WHEEL_SOURCE"),
    }
    table("Plan", {key: value for key, value in shown.items() if value not in ("", None)})
    table("Resources", {key: value for key, value in facts["resources"].items() if value})
    table("Pins", pins)
    say(f"\nCommand\n  {argv}\n")


def verdict(results: Sequence[Result]) -> None:
    """Print the verdict on standard output: a row a check, then the worst of them."""
    for result in results:
        rows(result.checks)
        _out().print(Text(f"{result.verdict}: {result.named.reference}", style=COLOURS[result.verdict]))


def rows(checks: Sequence[Check]) -> None:
    """Print checks on standard output: on a terminal folded, elsewhere a line a row."""
    shown = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("", "check", "expected", "seen", "what to do"):
        shown.add_column(heading, overflow="fold")
    for check in checks:
        mark = Text(check.verdict, style=COLOURS[check.verdict])
        cells = map(visible, (check.check, check.expected, check.seen, check.next))
        shown.add_row(mark, *map(Text, cells))
    _out().print(shown)


def _out() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else LINE_WIDTH)


def report(data: dict[str, Any], next_command: str) -> None:
    """Print the result of a build that was pushed."""
    result = data["result"]
    phases = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in data["phases"].items())
    table(
        "Pushed",
        {
            "image": result["reference"],
            "tag": data["destination"],
            "layers": f"{len(result['layers'])}, largest {size(result['largest'])}",
            "total": size(result["total"]),
            "phases": phases,
            "record": data["id"],
            "next": next_command,
        },
    )
