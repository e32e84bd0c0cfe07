"""The one place that starts a process.

A list of words in, never a shell string; standard output and standard error apart; always a time
limit; the whole process group ends on a time-out or an interrupt; secrets are masked in whatever
is shown or kept.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from plumbum import local as machine

from scripts.errors import CommandFailed, CommandTimeout, ToolMissing

Argv = Sequence[str | os.PathLike[str]]
GRACE_SECONDS = 5.0
MASK = "***"
_running: set[subprocess.Popen[bytes]] = set()
"""What `run` waits for now, in any thread."""
_over = threading.Event()
"""Set when this process only ends: then nothing new is started."""


@dataclass(frozen=True)
class Result:
    """What a process left behind: its exit code (negative: a signal) and its two streams."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str


def mask(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret in it replaced by `***`."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def shown(argv: Argv, secrets: Iterable[str] = ()) -> str:
    """The command as a person would paste it into a shell, secrets masked."""
    return mask(shlex.join(str(word) for word in argv), secrets)


def environment(changes: Mapping[str, str | None] | None, *, inherit: bool = True) -> dict[str, str]:
    """This process's environment (or an empty one) with changes; the value None takes a name out."""
    merged: dict[str, str | None] = {**(os.environ if inherit else {}), **(changes or {})}
    return {name: value for name, value in merged.items() if value is not None}


def start(
    argv: Argv,
    *,
    env: Mapping[str, str | None] | None = None,
    inherit_env: bool = True,
    cwd: Path | None = None,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program as the leader of its own process group.

    Raises:
        ToolMissing: the program is not on PATH.
    """
    name, *rest = (str(word) for word in argv)
    # Not plumbum's own search: it keeps the PATH of the time when it was imported.
    path = shutil.which(name)
    if not path:
        raise ToolMissing(f"{name} is not on PATH.", f"install {name}, or put its folder on PATH.")
    bound = machine[path].bound_command(*rest) if rest else machine[path]
    process = bound.popen(
        env=environment(env, inherit=inherit_env),
        cwd=str(cwd) if cwd else None,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        pass_fds=pass_fds,
    )
    return cast("subprocess.Popen[bytes]", process)


def stop(process: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> int:
    """End a process group: terminate, wait up to `grace` seconds, kill. Returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
            break
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def stop_all() -> None:
    """End every program that `run` waits for, in any thread; those calls fail, and each later one."""
    _over.set()
    for process in tuple(_running):
        stop(process)


def run(
    argv: Argv,
    *,
    timeout: float,
    env: Mapping[str, str | None] | None = None,
    inherit_env: bool = True,
    cwd: Path | None = None,
    text_in: str = "",
    secrets: Collection[str] = (),
    ok: Collection[int] | None = (0,),
    on_line: Callable[[str], None] | None = None,
    next_step: str = "",
) -> Result:
    """Run a program to its end.

    Args:
        argv: the program and its arguments.
        timeout: seconds; the process group is ended after them.
        env: changes to the environment; None takes a name out.
        inherit_env: False starts from an empty environment.
        text_in: what the program reads on standard input.
        secrets: values that are masked in the result and in errors.
        ok: the exit codes that are answers; None: all of them.
        on_line: called with each line of either stream, as it comes and masked.
        next_step: what a person does when the program fails.

    Raises:
        ToolMissing, CommandFailed, CommandTimeout.
    """
    if _over.is_set():
        raise CommandFailed(
            f"{shown(argv, secrets)} was not started: this process ends.", code=-signal.SIGTERM
        )
    process = start(argv, env=env, inherit_env=inherit_env, cwd=cwd, stdin=subprocess.PIPE)
    _running.add(process)
    try:
        readers = [_Reader(stream, secrets, on_line) for stream in (process.stdout, process.stderr) if stream]
        _feed(process, text_in)
        _wait(process, timeout)
    except subprocess.TimeoutExpired as expired:
        stop(process)
        raise CommandTimeout(
            f"{shown(argv, secrets)} did not end within {timeout:g} s.", next_step
        ) from expired
    except BaseException:
        stop(process)
        raise
    finally:
        _running.discard(process)
    stdout, stderr = (reader.text() for reader in readers)
    result = Result(tuple(mask(str(word), secrets) for word in argv), process.returncode, stdout, stderr)
    if ok is not None and result.code not in ok:
        raise CommandFailed(
            f"{shown(argv, secrets)} ended with {_ending(result.code)}.",
            code=result.code,
            stdout=stdout,
            stderr=stderr,
            next_step=next_step,
        )
    return result


def output(argv: Argv, *, timeout: float = 60, **options: object) -> str:
    """Standard output of a program that succeeds, without white space at its ends."""
    return run(argv, timeout=timeout, **options).stdout.strip()  # type: ignore[arg-type]


def _feed(process: subprocess.Popen[bytes], text: str) -> None:
    if process.stdin:
        with suppress(BrokenPipeError), process.stdin as stream:
            stream.write(text.encode())


def _wait(process: subprocess.Popen[bytes], timeout: float) -> None:
    """Wait for the end at once where the system tells it; Python's own wait looks every 50 ms."""
    if hasattr(os, "pidfd_open"):  # Linux
        end = os.pidfd_open(process.pid)
        try:
            if not select.select([end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(process.args, timeout)
        finally:
            os.close(end)
    process.wait(timeout)


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class _Reader:
    """Reads one stream to its end in a thread, so that neither stream can block the other."""

    def __init__(
        self, stream: IO[bytes], secrets: Collection[str], on_line: Callable[[str], None] | None
    ) -> None:
        self._stream, self._secrets, self._on_line = stream, secrets, on_line
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for raw in self._stream:
            line = mask(raw.decode("utf-8", "replace"), self._secrets)
            self._lines.append(line)
            if self._on_line:
                self._on_line(line.rstrip("\r\n"))

    def text(self) -> str:
        # A daemon that the program left behind may hold the stream open: what came is enough.
        self._thread.join(GRACE_SECONDS)
        return "".join(list(self._lines))
