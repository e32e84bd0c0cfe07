"""Watch a job to its end: its state decides, its lines are shown.

Starting iris costs two to five seconds of a core, every time. So one long-lived process streams the
lines, and the state is asked for when something has happened (the first line came, the stream ended) or
when `interval` has passed. No text of the log and no exit code of the stream decides anything.
"""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from scripts import command
from scripts.errors import CommandTimeout, IrisError, StillRunning
from scripts.iris.cli import Iris, JobState, JobStatus, LogLine, parse_logs

TICK_SECONDS = 1.0
DRAIN_SECONDS = 15.0
MISSES = 3


@dataclass(frozen=True)
class Update:
    """News of a job: its state when last read, seconds since the watch began, and the lines since the
    last update. `trouble` says why the state cannot be read at the moment; empty when it can.
    """

    state: JobState
    elapsed: float
    lines: tuple[LogLine, ...] = ()
    pending_reason: str = ""
    trouble: str = ""


def watch(
    iris: Iris,
    job_id: str,
    *,
    interval: float,
    deadline_seconds: float | None,
    on_update: Callable[[Update], None],
) -> JobStatus:
    """Wait for a job's end; returns how it ended, whatever that is.

    Args:
        interval: seconds between two looks at the state while nothing happens.
        deadline_seconds: when the watch gives up; None: never.
        on_update: called about once a second, always by this thread.

    Raises:
        StillRunning: the deadline passed.
        IrisError: the job was there, and the controller no longer knows it.
    """
    with _Lines(iris, job_id) as lines:
        poll = _Poll(iris, job_id)
        began = time.monotonic()
        due = began + interval
        while True:
            news = lines.wait(min(TICK_SECONDS, interval))
            if lines.happened() or time.monotonic() >= due:
                scheduled = time.monotonic() >= due
                poll.look()
                due = time.monotonic() + interval
                if poll.status.state.ended:
                    news += lines.rest(DRAIN_SECONDS)
                elif scheduled:
                    # Not at once when it ends: a stream that cannot live must not be started in a circle.
                    lines.again()
            elapsed = time.monotonic() - began
            status = poll.status
            on_update(Update(status.state, elapsed, tuple(news), status.pending_reason, poll.trouble))
            if status.state.ended:
                return status
            if deadline_seconds is not None and elapsed > deadline_seconds:
                raise StillRunning(
                    f"{job_id} is still {status.state} after {elapsed:.0f} s; it goes on.",
                    f"`inv watch` follows it, `inv cancel` stops it ({job_id}).",
                    poll.trouble,
                )


class _Poll:
    """The job's status as it was last read, and what stood in the way since."""

    def __init__(self, iris: Iris, job_id: str) -> None:
        self._iris, self._job_id = iris, job_id
        self._missed = 0
        self.status = JobStatus(JobState.PENDING)
        self.seen = False
        self.trouble = ""

    def look(self) -> None:
        try:
            status = self._iris.status(self._job_id)
        except (IrisError, CommandTimeout) as failed:
            # The controller being away says nothing about the job.
            self.trouble = failed.what
            return
        if status.state is not JobState.ABSENT:
            self.status, self.seen, self.trouble, self._missed = status, True, "", 0
            return
        self._missed += 1
        self.trouble = f"the controller does not know {self._job_id}."
        if self.seen and self._missed >= MISSES:
            raise IrisError(
                f"{self._job_id} has disappeared: the controller knew it and no longer does.",
                "look whether the controller was restarted (`inv local.status`), and build again.",
            )


class _Lines:
    """The job's lines out of a process of iris, which is started again when it ended before the job."""

    def __init__(self, iris: Iris, job_id: str) -> None:
        self._iris, self._job_id = iris, job_id
        self._queue: queue.SimpleQueue[LogLine | None] = queue.SimpleQueue()
        self._taken = 0
        self._news = self._ended = False
        self._start()

    def __enter__(self) -> _Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        command.stop(self._process)

    def wait(self, seconds: float) -> list[LogLine]:
        """The lines that came; at once when there are some, else the first within so many seconds."""
        lines: list[LogLine] = []
        with suppress(queue.Empty):
            while True:
                line = self._queue.get(timeout=0 if lines else seconds)
                if line is None:
                    self._ended = self._news = True
                else:
                    self._news = self._news or not self._taken
                    self._taken += 1
                    lines.append(line)
        return lines

    def happened(self) -> bool:
        """Whether the first line came or the stream ended since this was last asked."""
        news, self._news = self._news, False
        return news

    def again(self) -> None:
        """Start the stream again when it has ended."""
        if self._ended:
            self._start()

    def rest(self, seconds: float) -> list[LogLine]:
        """What still comes until the stream ends, or until so many seconds have passed."""
        deadline = time.monotonic() + seconds
        lines: list[LogLine] = []
        while not self._ended and time.monotonic() < deadline:
            lines += self.wait(TICK_SECONDS)
        return lines

    def _start(self) -> None:
        self._ended = False
        self._process = self._iris.follow(self._job_id)
        threading.Thread(target=self._read, args=(self._process, self._taken), daemon=True).start()

    def _read(self, process: subprocess.Popen[bytes], known: int) -> None:
        # The stream always begins at the job's first line: those that were read before are left out.
        last: LogLine | None = None
        for number, raw in enumerate(process.stdout or ()):
            (last,) = parse_logs([raw.decode("utf-8", "replace").rstrip("\r\n")], last)
            if number >= known:
                self._queue.put(last)
        process.wait()
        self._queue.put(None)
