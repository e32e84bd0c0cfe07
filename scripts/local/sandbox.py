"""The disposable root: runs a command as a Kubernetes pod would, and leaves nothing of it on the machine.

The local Iris starts a task on the host, and kaniko deletes the root that it runs in. So the task's
command is this module, and the build script runs as process 1 of new namespaces in a root that is
unpacked for it alone: in memory where there is enough, else in a folder that goes away with it.
Unpacking takes a quarter of a second, so there is no shared lower folder that a task could harm.
enter_root.py is the half that runs inside. A container engine does the same where namespaces are refused.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from types import FrameType

from scripts import command
from scripts.cache import locked
from scripts.errors import CommandFailed, IrisImagesError, ToolMissing
from scripts.local import enter_root
from scripts.registry import crane
from scripts.registry.reference import Reference

GRACE_SECONDS = 20
"""From SIGTERM to SIGKILL. A pod has 30 s; Iris must not be kept waiting longer than its own patience."""
SPARE_MEMORY = 2 * 1024**3
"""Bytes that stay for everything else when a root goes into memory."""
NAMESPACES = ("mnt", "pid", "ipc", "uts")
POD_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
}
ENGINES = ("docker", "podman")
NOWHERE = "run as root, or install docker or podman."
REPOSITORY = Path(__file__).parents[2]
UNSHARE = ("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child")
TRIAL = "mount -t proc proc /proc && mount -t tmpfs none /tmp && cd /tmp && pivot_root . ."
# The user is root inside, and its other users are the range that /etc/subuid gives to the user.
AS_USER = ("--map-root-user", "--map-auto")


def command_prefix(root: Path, scratch: Path, size: int) -> tuple[str, ...]:
    """The words to put before a task's command, good in any folder.

    Args:
        root: the tar of the root (see roots.py).
        scratch: a folder for the mount point and for roots that do not fit into memory.
        size: bytes that the root may grow to.
    """
    # Iris' local mode gives each task a /tmp of its own and rewrites words that begin with it: none does.
    python = ("env", f"PYTHONPATH={REPOSITORY}", f"/.{sys.executable}", "-m", "scripts.local.sandbox")
    return (*python, f"--root={root}", f"--scratch={scratch}", f"--size={size}", "--")


def available() -> None:
    """Raise ToolMissing, with what to do, where a disposable root cannot be had on this machine."""
    _engine()


def run_image(
    reference: Reference, scratch: Path, argv: Sequence[str], *, size: int, timeout: float
) -> command.Result:
    """Run a command in a root made from an image of a registry, with the image's environment.

    Args:
        size: bytes of the unpacked image and of what the command writes.
        timeout: seconds for the command.

    Raises:
        RegistryError: the image cannot be had.
        CommandFailed: the command did not end with 0.
        CommandTimeout, ToolMissing.
    """
    image = crane.config(reference).get("config", {})
    env = dict(pair.split("=", 1) for pair in image.get("Env", []))
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="image-") as folder:
        tar = Path(folder, "root.tar")
        crane.ask(["export", str(reference), str(tar)], timeout=timeout)
        words = [*command_prefix(tar, scratch, size), *argv]
        return command.run(words, timeout=timeout, env={"IRIS_JOB_ENV": json.dumps(env)})


def main() -> int:
    """Run the command line `--root TAR --scratch FOLDER --size BYTES -- ARGV...`; returns its exit code."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("argv", nargs="+")
    wanted = parser.parse_args()
    engine = _engine()
    if engine:
        return _in_container(engine, wanted.root, wanted.argv)
    with _place(wanted.scratch, wanted.size) as (root, size):
        return _in_namespaces(root, size, wanted.root, wanted.argv)


def pod_environment(outer: Mapping[str, str]) -> dict[str, str]:
    """What a pod would have of a local task's environment: the image's, Iris' and the job's names only."""
    env = dict(POD_ENVIRONMENT)
    env |= {name: value for name, value in outer.items() if name.startswith("IRIS_")}
    env |= {name: str(value) for name, value in json.loads(outer.get("IRIS_JOB_ENV", "{}")).items()}
    if "IRIS_WORKDIR" in outer:
        env["IRIS_WORKDIR"] = enter_root.APP
    if "RIGGING_SECRETS_DIR" in outer:
        env["RIGGING_SECRETS_DIR"] = enter_root.SECRETS
    return env


def _in_namespaces(root: Path, size: int, tar: Path, argv: list[str]) -> int:
    plan = {
        "root": str(root),
        "size": size,
        "tar": str(tar.resolve()),
        "argv": argv,
        "env": pod_environment(os.environ),
        "bundle": os.environ.get("IRIS_WORKDIR", ""),
        "secrets": os.environ.get("RIGGING_SECRETS_DIR", ""),
        "outside": {name: enter_root.namespace(name) for name in NAMESPACES},
    }
    inside = (sys.executable, "-m", "scripts.local.enter_root")
    # However this process ends, unshare is killed with it, and process 1 with unshare.
    process = command.start(
        ["setpriv", "--pdeathsig", "KILL", *_unshare(), *inside],
        stdin=subprocess.PIPE,
        stdout=sys.stdout.fileno(),
        stderr=sys.stderr.fileno(),
    )
    return _wait(process, json.dumps(plan).encode())


def _in_container(engine: str, tar: Path, argv: list[str]) -> int:
    """The same in a container; killed hard, this process leaves the container to its own end."""
    image = f"iris-images-task:{tar.parent.name}"
    if command.run([engine, "image", "inspect", image], timeout=60, ok=None).code:
        command.run([engine, "import", tar, image], timeout=600)
    env = pod_environment(os.environ)
    words = ["--rm", "--init=false", "--network=host", f"--workdir={enter_root.APP}"]
    # Names only: the engine reads the values from its own environment, where no `ps` shows them.
    words += [word for name in env for word in ("--env", name)]
    script = f"test ! -d /app-src || cp -R /app-src/. {enter_root.APP} && exec " + '"$@"'
    process = command.start(
        [engine, "run", *words, *_volumes(), image, "sh", "-c", script, "sh", *argv],
        env=env | {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
        stdin=subprocess.PIPE,
        stdout=sys.stdout.fileno(),
        stderr=sys.stderr.fileno(),
    )
    return _wait(process, b"")


def _volumes() -> list[str]:
    folders = {"IRIS_WORKDIR": "/app-src", "RIGGING_SECRETS_DIR": enter_root.SECRETS}
    return [
        f"--volume={os.environ[name]}:{target}:ro" for name, target in folders.items() if name in os.environ
    ]


def _wait(process: subprocess.Popen[bytes], text_in: bytes) -> int:
    """Wait for the command and hand signals on to it; its exit code, or 128 and the signal's number."""

    def forward(number: int, _: FrameType | None) -> None:
        _signal_command(process, number)
        signal.alarm(GRACE_SECONDS)

    signal.signal(signal.SIGALRM, lambda *_: process.kill())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    with suppress(BrokenPipeError):
        process.communicate(text_in)
    code = process.wait()
    return 128 - code if code < 0 else code


def _signal_command(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to process 1 of the new namespace; unshare hands none on (an engine does)."""
    target = _process_one(process.pid) or process.pid
    with suppress(ProcessLookupError):
        os.kill(target, number)


def _process_one(parent: int) -> int | None:
    """The child of that process which is process 1 of its own namespace (NSpid of proc(5))."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            status = Path(f"/proc/{child}/status").read_text()
            numbers = next(line.split() for line in status.splitlines() if line.startswith("NSpid:"))
            if len(numbers) > 2 and numbers[-1] == "1":
                return int(child)
    return None


@contextmanager
def _place(scratch: Path, size: int) -> Iterator[tuple[Path, int]]:
    """A folder to be the root, and the bytes of memory for it (0: it lies on disk)."""
    scratch.mkdir(parents=True, exist_ok=True)
    sweep(scratch)
    if memory_available() - SPARE_MEMORY >= size:
        # One mount point for all: each mounts in a namespace of its own, and nothing is left to remove.
        (scratch / "root").mkdir(exist_ok=True)
        yield (scratch / "root").resolve(), size
    else:
        print(
            f"The disposable root lies on disk: less than {size / 1e9:.1f} GB of memory to spare.",
            file=sys.stderr,
        )
        with _folder_on_disk(scratch) as folder:
            yield folder, 0


@contextmanager
def _folder_on_disk(scratch: Path) -> Iterator[Path]:
    folder = scratch.resolve() / f"disk-{secrets.token_hex(4)}"
    with locked(scratch / ".lock"):
        lock = folder.with_suffix(".lock").open("a")
        flock(lock, LOCK_EX)
        (folder / "root").mkdir(parents=True)
    with lock:
        try:
            yield folder / "root"
        finally:
            _remove(folder)


def sweep(scratch: Path) -> None:
    """Remove the roots on disk that nobody holds any more: whoever made them was killed."""
    with locked(scratch / ".lock"):
        for path in scratch.glob("disk-*.lock"):
            with path.open("a") as lock, suppress(BlockingIOError):
                flock(lock, LOCK_EX | LOCK_NB)
                _remove(path.with_suffix(""))


def _remove(folder: Path) -> None:
    """Remove a root and its lock, in a user namespace where its files belong to the user's range."""
    command.run([*_unshare(), "rm", "--recursive", "--force", "--one-file-system", folder], timeout=600)
    folder.with_suffix(".lock").unlink(missing_ok=True)


def memory_available() -> int:
    """Bytes that this process may still use: of the machine, and of its control group."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return min([free, *_group_memory()])


def _group_memory() -> Iterator[int]:
    """What is left of each limit above this process, in both layouts of control groups (cgroups(7))."""
    files = {
        "": ("memory.max", "memory.current"),
        "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    }
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kind, path = line.split(":", 2)
        if kind in files:
            mount = Path("/sys/fs/cgroup", kind)
            here = mount / path.lstrip("/")
            for folder in (here, *here.parents):
                with suppress(OSError, ValueError):  # no file, or "max"
                    limit, used = (int((folder / name).read_text()) for name in files[kind])
                    yield limit - used


def _engine() -> str:
    """The container engine to use; empty where this machine's namespaces do.

    Raises:
        ToolMissing: neither can be had.
    """
    refused = _refusal()
    found = [engine for engine in ENGINES if refused and shutil.which(engine)]
    if refused and not found:
        raise ToolMissing(f"A disposable root cannot be made on this machine: {refused}", NOWHERE)
    return found[0] if found else ""


def _refusal() -> str:
    """Why namespaces cannot be had here; empty where they can."""
    if os.geteuid() and not shutil.which("newuidmap"):
        return "an ordinary user needs newuidmap (package uidmap)."
    env = {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    try:
        command.run([*_unshare(), "sh", "-c", TRIAL], timeout=30, env=env)
    except (ToolMissing, CommandFailed) as failed:
        return f"{failed.what}{failed.detail}"
    return ""


def _unshare() -> tuple[str, ...]:
    return (*UNSHARE, *(AS_USER if os.geteuid() else ()))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except IrisImagesError as failed:
        print(failed, file=sys.stderr)
        sys.exit(failed.exit_code)
