"""The servers that a local build needs: started on demand, found again, stopped by their own id.

A service holds a lock on a file for as long as it lives (it inherits the open file), so a process
id that was given to somebody else is never taken for ours. Services listen on 127.0.0.1 only.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from scripts import command
from scripts.cache import locked
from scripts.errors import CommandTimeout, ToolMissing

STOP_SECONDS = 15.0


@dataclass(frozen=True)
class Running:
    """A live service: its process id, its port on 127.0.0.1, its log, and whether a build may stop it."""

    name: str
    pid: int
    port: int
    log: str
    on_demand: bool


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listening(port: int) -> bool:
    """Whether something accepts connections on that port of 127.0.0.1."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def kept(file: Path, make: Callable[[], str]) -> str:
    """The text of that file, made once; the caller holds a lock."""
    if not file.exists():
        part = file.with_name(f"{file.name}.part")
        part.touch(mode=0o600)
        part.write_text(make())
        part.rename(file)
    return file.read_text()


def find(folder: Path, name: str) -> Running | None:
    """The service of that name, if it lives."""
    with suppress(FileNotFoundError, json.JSONDecodeError, TypeError):
        known = Running(**json.loads((folder / f"{name}.json").read_text()))
        return known if _held(folder / f"{name}.alive") else None
    return None


def up(
    folder: Path,
    name: str,
    argv: command.Argv,
    *,
    port: int,
    env: Mapping[str, str | None] | None = None,
    inherit_env: bool = True,
    timeout: float = 60,
    on_demand: bool = True,
) -> Running:
    """Start a service unless it lives already, and wait until it answers.

    Args:
        folder: where its state, its lock and its log lie.
        port: where it listens on 127.0.0.1.
        timeout: seconds until it must answer.
        on_demand: the last build that used it stops it.

    Raises:
        ToolMissing: it ended before it answered (its log's tail is in the error).
        CommandTimeout: it did not answer in time; it is stopped again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f"{name}.lock"):
        if known := find(folder, name):
            return known
        if listening(port):
            raise ToolMissing(
                f"Port {port} of 127.0.0.1, which {name} had the last time, is taken by another program.",
                f"stop that program, or remove {folder / f'{name}.port'} to let {name} move.",
            )
        log = folder / f"{name}.log"
        with (folder / f"{name}.alive").open("a") as alive, log.open("wb") as out:
            fcntl.flock(alive, fcntl.LOCK_EX)
            process = command.start(
                argv,
                env=env,
                inherit_env=inherit_env,
                stdout=out,
                stderr=out,
                pass_fds=[alive.fileno()],
            )
        running = Running(name, process.pid, port, str(log), on_demand)
        _write(folder, running)
        deadline = time.monotonic() + timeout
        # Another program may have taken the port in the meantime: ours must be the one that listens.
        while not _listens(process.pid, port):
            if process.poll() is not None:
                raise ToolMissing(
                    f"{name} ended at once (exit code {process.returncode}).", detail=_tail(log)
                )
            if time.monotonic() > deadline:
                command.stop(process)
                raise CommandTimeout(f"{name} did not answer within {timeout:g} s.", f"read {log}.")
            time.sleep(0.1)
        return running


def down(folder: Path, name: str) -> bool:
    """Stop the service of that name and all that it started; False when it does not live."""
    with locked(folder / f"{name}.lock"):
        known = find(folder, name)
        if not known:
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(known.pid, number)
            if _released(folder / f"{name}.alive", STOP_SECONDS):
                break
        (folder / f"{name}.json").unlink(missing_ok=True)
        return True


def keep(folder: Path) -> None:
    """Take the services of that folder out of the builds' hands: they live until somebody stops them."""
    for state in folder.glob("*.json"):
        known = find(folder, state.stem)
        if known:
            _write(folder, replace(known, on_demand=False))


@contextmanager
def in_use(folder: Path, stop_last: Callable[[], None]) -> Iterator[None]:
    """Use the services of that folder; the last user out, and only that one, calls `stop_last`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "in-use").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stop_last()


def _listens(group: int, port: int) -> bool:
    """Whether a process of a group listens on that port of 127.0.0.1 (proc(5), "/proc/net/tcp")."""
    wanted = f"0100007F:{port:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    sockets = {f"socket:[{row[9]}]" for row in rows if (row[1], row[3]) == (wanted, "0A")}
    return any(_open_files(process) & sockets for process in _members(group))


def _members(group: int) -> Iterator[Path]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getpgid(int(process.name)) == group:
                yield process


def _open_files(process: Path) -> set[str]:
    found = set()
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):
                found.add(str(link.readlink()))
    return found


def _write(folder: Path, running: Running) -> None:
    part = folder / f"{running.name}.part"
    part.write_text(json.dumps(asdict(running)))
    part.rename(folder / f"{running.name}.json")


def _held(path: Path) -> bool:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _released(path: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while _held(path):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _tail(log: Path, lines: int = 10) -> str:
    return "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-lines:])
