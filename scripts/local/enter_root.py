"""The inside of the disposable root: what runs between `unshare` and the task's command.

It is process 1 of new mount, pid, ipc and uts namespaces. It fills the new root, makes it the root,
checks that nothing of the machine is left in sight, and becomes the command. kaniko deletes the root
that it sees, so whatever looks wrong here ends the task before the command starts.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from scripts import command
from scripts.errors import IrisImagesError

# mount(2), umount2(2) and prctl(2) of Linux.
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, REMOUNT, BIND = 1, 2, 4, 8, 32, 4096
DETACH = 2
DROP_CAPABILITY = 24

APP = "/app"
SECRETS = "/run/rigging/secrets"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
NETWORK_FILES = ("/etc/hosts", "/etc/resolv.conf")
# What a pod may only read: with these a process could change or restart the machine.
KERNEL_FILES = ("/proc/sys", "/proc/sysrq-trigger")
MOUNTS = {
    "/",
    "/proc",
    "/dev",
    "/dev/pts",
    "/dev/shm",  # noqa: S108
    SECRETS,
    *NETWORK_FILES,
    *KERNEL_FILES,
    *(f"/dev/{name}" for name in DEVICES),
}
# The capabilities of a container by default (capabilities(7); Docker's and containerd's list):
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw,
# sys_chroot, mknod, audit_write, setfcap.
CAPABILITIES = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}
LAST_CAPABILITY = 63
UNPACK_SECONDS = 1800.0

libc = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    """Read the plan (JSON on standard input, see sandbox.py), set the root up, become its command."""
    signal.signal(signal.SIGTERM, _end)  # process 1 ignores what it does not handle
    plan = json.load(sys.stdin)
    root = Path(plan["root"])
    _check_namespaces(plan["outside"])
    _mount_root(root, plan["size"])
    _unpack(Path(plan["tar"]), root)
    _mount_kernel(root)
    _mount_devices(root / "dev")
    _mount_network_files(root)
    _copy_bundle(plan["bundle"], root)
    _copy_secrets(plan["secrets"], root)
    socket.sethostname("task")
    _enter(root)
    _check_mounts()
    _become(plan["argv"], plan["env"])


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _check_namespaces(outside: dict[str, str]) -> None:
    """Refuse to go on in a namespace of the machine."""
    shared = [name for name, link in outside.items() if namespace(name) == link]
    if shared or os.getpid() != 1:
        raise SystemExit(f"This is not a disposable root: shared namespaces {shared}, process {os.getpid()}.")


def namespace(name: str) -> str:
    """The identity of this process's namespace of that kind."""
    return str(Path(f"/proc/thread-self/ns/{name}").readlink())


def _mount_root(root: Path, size: int) -> None:
    """Memory of `size` bytes; where size is 0, an overlay on the folder around it, as a pod's root is."""
    if size:
        return _mount("tmpfs", root, "tmpfs", NO_DEVICES, f"mode=755,size={size}")
    for name in ("lower", "upper", "work"):
        root.with_name(name).mkdir()
    os.chdir(root.parent)  # names without a folder: no comma or colon of a path gets into the options
    options = "lowerdir=lower,upperdir=upper,workdir=work,userxattr"
    return _mount("overlay", root, "overlay", NO_DEVICES, options)


def _unpack(tar: Path, root: Path) -> None:
    words: list[str | Path] = ["tar", "--extract", "--file", tar, "--directory", root]
    words += ["--numeric-owner", "--same-owner", "--same-permissions"]
    words += ["--anchored", "--exclude=./dev/*", "--exclude=dev/*"]
    command.run(words, timeout=UNPACK_SECONDS)
    root.chmod(0o755)


def _mount_kernel(root: Path) -> None:
    flags = NO_SUID | NO_DEVICES | NO_EXEC
    _mount("proc", _folder(root, "/proc"), "proc", flags)
    for name in KERNEL_FILES:
        with suppress(FileNotFoundError):  # a kernel without the magic key
            _read_only(_inside(root, name), _inside(root, name), flags)


def _mount_devices(dev: Path) -> None:
    _mount("tmpfs", _folder(dev.parent, "/dev"), "tmpfs", NO_SUID, "mode=755,size=64k")
    for name in DEVICES:
        _device(Path("/dev") / name, dev / name)
    _mount("devpts", _folder(dev, "pts"), "devpts", NO_SUID | NO_EXEC, "newinstance,ptmxmode=666,mode=620")
    _mount("tmpfs", _folder(dev, "shm"), "tmpfs", NO_SUID | NO_DEVICES, "mode=1777")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd"}
    links |= {name: f"/proc/self/fd/{n}" for n, name in enumerate(("stdin", "stdout", "stderr"))}
    for name, target in links.items():
        (dev / name).symlink_to(target)


def _device(host: Path, target: Path) -> None:
    """A node of our own, so that a chmod inside changes nothing outside; a bind where nodes are refused."""
    try:
        os.mknod(target, stat.S_IFCHR | 0o666, host.stat().st_rdev)
        target.chmod(0o666)
    except PermissionError:
        target.touch()
        _mount(host, target, "", BIND)


def _mount_network_files(root: Path) -> None:
    """Copies of the machine's name service files, read-only, as a pod has them."""
    copies = root / ".pod"
    copies.mkdir()
    _mount("tmpfs", copies, "tmpfs", 0, "mode=755,size=4m")
    for name in NETWORK_FILES:
        copy, target = copies / Path(name).name, _folder(root, "/etc") / Path(name).name
        copy.write_bytes(Path(name).read_bytes() if Path(name).is_file() else b"")
        copy.chmod(0o644)
        target.unlink(missing_ok=True)
        target.touch()
        _read_only(copy, target, NO_SUID | NO_DEVICES | NO_EXEC)
    _unmount(copies)
    copies.rmdir()


def _copy_bundle(bundle: str, root: Path) -> None:
    if bundle:
        shutil.copytree(bundle, _folder(root, APP), symlinks=True, dirs_exist_ok=True)


def _copy_secrets(folder: str, root: Path) -> None:
    """The secret files in memory: folder 0700, files 0400, as a pod has them."""
    if folder:
        target = _folder(root, SECRETS)
        _mount("tmpfs", target, "tmpfs", NO_SUID | NO_DEVICES | NO_EXEC, "mode=700,size=4m")
        for secret in Path(folder).iterdir():
            copy = target / secret.name
            copy.touch(0o600)
            copy.write_bytes(secret.read_bytes())
            copy.chmod(0o400)


def _enter(root: Path) -> None:
    """Make it the root, and take the machine's root away (pivot_root(2), the case of two equal paths)."""
    os.chdir(root)
    _check(libc.pivot_root(b".", b"."), f"pivot_root {root}")
    _unmount(Path())
    os.chdir("/")


def _check_mounts() -> None:
    """Refuse to go on when any mount is in sight that was not made here."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    strange = {line.split()[4] for line in lines} - MOUNTS
    if strange:
        raise SystemExit(f"This is not a disposable root: {sorted(strange)} are mounted.")


def _become(argv: list[str], env: dict[str, str]) -> NoReturn:
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    if Path(APP).is_dir():
        os.chdir(APP)
    for number in set(range(LAST_CAPABILITY + 1)) - CAPABILITIES:
        libc.prctl(DROP_CAPABILITY, number, 0, 0, 0)  # a number that this kernel does not have: an error
    sys.stdout.flush()
    os.execvpe(argv[0], argv, env)  # noqa: S606 - there is no shell in it


def _folder(root: Path, name: str) -> Path:
    folder = _inside(root, name)
    if folder.is_symlink():
        raise SystemExit(f"{name} is a symlink in this image; it must be a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _inside(root: Path, name: str) -> Path:
    """A path of the new root; refuses an image in which a symlink leads out of it, to the machine."""
    path = root / name.lstrip("/")
    if not path.parent.resolve().is_relative_to(root):
        raise SystemExit(f"{name} lies behind a symlink in this image; it must be a path of its own.")
    return path


def _read_only(source: Path, target: Path, flags: int) -> None:
    _mount(source, target, "", BIND)
    _mount("none", target, "", REMOUNT | BIND | READ_ONLY | flags)


def _mount(source: str | Path, target: Path, kind: str, flags: int, options: str = "") -> None:
    words = (os.fsencode(source), os.fsencode(target), kind.encode())
    _check(libc.mount(*words, ctypes.c_ulong(flags), options.encode()), f"mount {source} at {target}")


def _unmount(target: Path) -> None:
    _check(libc.umount2(os.fsencode(target), DETACH), f"unmount {target}")


def _check(answer: int, act: str) -> None:
    if answer:
        number = ctypes.get_errno()
        raise OSError(number, f"{act}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        main()
    except (OSError, IrisImagesError) as failed:
        raise SystemExit(f"The disposable root could not be set up: {failed}") from failed
