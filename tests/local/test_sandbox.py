"""The disposable root with real namespaces: what is in it, what is not, and what is left of it."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts import command
from scripts.errors import ToolMissing
from scripts.local import registry, roots, sandbox, services
from scripts.registry.reference import parse
from tests.local.place import processes

MEMORY, DISK = 1_000_000_000, 10**15
"""A size that fits into memory, and one that fits into none."""
SECONDS = 120.0
EMPTY_EVERYTHING = "rm -rf --no-preserve-root / 2>/dev/null; echo emptied; ! test -e /usr"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Place:
    """Where the sandboxes of one test lie, and what the machine has beside them."""

    root: Path
    scratch: Path
    bundle: Path
    sentinel: Path

    def words(self, *argv: str, size: int = MEMORY) -> list[str]:
        return [*sandbox.command_prefix(self.root, self.scratch, size), *argv]

    def env(self, **more: str) -> dict[str, str]:
        return {"IRIS_TASK_ID": "/me/job/0:0", "IRIS_WORKDIR": str(self.bundle), **more}

    def run(self, script: str, *, size: int = MEMORY, **env: str) -> command.Result:
        words = self.words("bash", "-c", script, size=size)
        return command.run(words, timeout=SECONDS, env=self.env(**env), ok=None)

    def start(self, *argv: str, size: int = MEMORY) -> subprocess.Popen[bytes]:
        return command.start(self.words(*argv, size=size), env=self.env())

    def left(self) -> set[str]:
        """What lies in the scratch folder beside the mount point and the lock that all share."""
        return {path.name for path in self.scratch.iterdir()} - {"root", ".lock"}


@pytest.fixture
def place(cache: Path, tmp_path: Path) -> Place:
    found = Place(roots.task_root(cache), *(tmp_path / name for name in ("scratch", "bundle", "sentinel")))
    found.bundle.mkdir()
    (found.bundle / "build.sh").write_text("echo built\n")
    found.sentinel.mkdir()
    (found.sentinel / "keep").write_text("kept")
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(mark: str) -> bool:
    return any(mark in words for words in processes().values())


@pytest.mark.parametrize("size", [MEMORY, DISK])
def test_a_command_that_empties_its_root_empties_nothing_else(place: Place, size: int) -> None:
    before = place.root.stat()
    result = place.run(EMPTY_EVERYTHING, size=size)
    assert (result.code, result.stdout) == (0, "emptied\n")
    assert (place.sentinel / "keep").read_text() == "kept"
    assert (place.bundle / "build.sh").read_text() == "echo built\n"
    assert (place.root.stat().st_size, place.root.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert ("lies on disk" in result.stderr) == (size == DISK)
    assert place.left() == set()


def test_the_command_is_process_1_with_the_environment_of_a_pod(place: Place) -> None:
    job = {"GITSHA": "abc", "TEXT": "two words\nand a line"}
    result = command.run(
        place.words("cat", "/proc/1/environ", "/proc/1/cmdline"),
        timeout=SECONDS,
        env=place.env(IRIS_JOB_ENV=json.dumps(job), OF_THE_HOST="1"),
    )
    *pairs, _cat, _environ, _cmdline, _ = result.stdout.split("\0")
    assert dict(pair.split("=", 1) for pair in pairs if "=" in pair) == {
        "PATH": DEFAULT_PATH,
        "HOME": "/root",
        "IRIS_TASK_ID": "/me/job/0:0",
        "IRIS_WORKDIR": "/app",
        "IRIS_JOB_ENV": json.dumps(job),
        **job,
    }
    assert place.run("echo $$ $PWD; cat build.sh").stdout == "1 /app\necho built\n"


@pytest.mark.parametrize("size", [MEMORY, DISK])
def test_nothing_of_the_machine_is_in_sight(place: Place, size: int) -> None:
    script = f"""
        test ! -e {place.sentinel} && test ! -e {place.root} && test ! -e /sys/class || exit 1
        echo /proc/[0-9]*
        ls -C /proc/1/fd
        while read -r _ _ _ _ point rest; do echo "$point ${{rest#* - }}"; done </proc/self/mountinfo
    """
    result = place.run(script, size=size)
    numbers, files, *mounts = result.stdout.splitlines()
    assert (result.code, numbers, files.split()) == (0, "/proc/1", ["0", "1", "2"])
    kinds = {line.split()[0]: line.split()[1] for line in mounts}
    # The build script's proof that its root may be emptied.
    assert kinds["/"] == ("tmpfs" if size == MEMORY else "overlay")
    assert set(kinds.values()) <= {"tmpfs", "overlay", "proc", "devpts", "devtmpfs"}


def test_a_task_has_the_powers_of_a_pod_and_not_of_the_machine(place: Place) -> None:
    null = Path("/dev/null").stat().st_mode
    script = """
        chmod 600 /dev/null
        mknod /tmp/null c 1 3 2>/dev/null && (: >/tmp/null) 2>/dev/null && echo opened a device
        (echo 1 >/proc/sys/vm/drop_caches) 2>/dev/null && echo wrote to the kernel
        mount -t tmpfs none /mnt 2>/dev/null && echo mounted
        (: >/etc/resolv.conf) 2>/dev/null && echo wrote a pod file
        grep CapBnd /proc/1/status
    """
    # chown ... setfcap: what container engines give by default.
    assert place.run(script).stdout == "CapBnd:\t00000000a80425fb\n"
    assert Path("/dev/null").stat().st_mode == null


def test_secrets_are_files_in_memory(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "REGISTRY_TOKEN").write_text("a-secret-value")
    script = (
        'cd "$RIGGING_SECRETS_DIR" && pwd && stat -c %a . * && cat *; grep -c $PWD\\ .*tmpfs /proc/mounts'
    )
    result = place.run(script, RIGGING_SECRETS_DIR=str(folder))
    assert result.stdout == "/run/rigging/secrets\n700\n400\na-secret-value1\n"
    assert place.left() == set()


def test_the_exit_code_is_the_command_s(place: Place) -> None:
    assert place.run("exit 23").code == 23


def test_a_signal_reaches_the_command(place: Place) -> None:
    script = "trap 'echo ended; exit 9' TERM; echo ready; while :; do sleep 0.1; done"
    process = place.start("bash", "-c", script)
    assert process.stdout and process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert (process.stdout.read(), process.wait(SECONDS)) == (b"ended\n", 9)


def test_a_command_that_is_deaf_to_signals_is_killed(place: Place) -> None:
    short = (
        "import sys; from scripts.local import sandbox; sandbox.GRACE_SECONDS = 1; sys.exit(sandbox.main())"
    )
    words = place.words("sh", "-c", "echo ready; exec sleep 1000")
    words[words.index("-m") : words.index("-m") + 2] = ["-c", short]
    process = command.start(words, env=place.env())
    assert process.stdout and process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 128 + signal.SIGKILL


@pytest.mark.parametrize("size", [MEMORY, DISK])
def test_a_launcher_that_is_killed_leaves_no_process_and_no_root(place: Place, size: int) -> None:
    mark = f"{time.time_ns()}.5"
    process = place.start("bash", "-c", f"echo ready; (sleep {mark} & sleep {mark}); :", size=size)
    assert process.stdout and process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: not alive(mark))
    assert str(place.scratch) not in Path("/proc/self/mountinfo").read_text()
    assert place.run("true").code == 0  # the next start sweeps
    assert place.left() == set()


def test_a_sweep_spares_a_root_that_is_in_use(place: Place) -> None:
    process = place.start("bash", "-c", "echo ready; read -t 3; cat build.sh", size=DISK)
    assert process.stdout and process.stdout.readline() == b"ready\n"
    sandbox.sweep(place.scratch)
    assert len(place.left()) == 2  # the root and its lock
    assert process.wait(SECONDS) == 0
    assert place.left() == set()


def test_two_at_once_do_not_meet(place: Place) -> None:
    script = "echo ready; touch /tmp/mine; sleep 1; ls /tmp /proc | grep -c '^mine$'"
    both = [place.start("bash", "-c", script) for _ in range(2)]
    assert [process.communicate(timeout=SECONDS)[0] for process in both] == [b"ready\n1\n"] * 2


@pytest.mark.parametrize("name", ["proc", "dev", "run", "etc", "app"])
def test_a_symlink_of_an_image_does_not_lead_to_the_machine(place: Place, tmp_path: Path, name: str) -> None:
    tar = tmp_path / "root.tar"
    with tarfile.open(tar, "w") as out:
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.SYMTYPE, str(place.sentinel)
        out.addfile(link)
    words = [*sandbox.command_prefix(tar, place.scratch, MEMORY), "true"]
    result = command.run(
        words, timeout=SECONDS, env=place.env(RIGGING_SECRETS_DIR=str(place.bundle)), ok=None
    )
    assert (result.code, "symlink in this image" in result.stderr) == (1, True)
    assert [path.name for path in place.sentinel.iterdir()] == ["keep"]


@pytest.fixture
def user(place: Place) -> Iterator[Callable[..., command.Result]]:
    """Runs a script in a disposable root as an ordinary user, with a Python that this user may read."""
    roots.system_program("newuidmap", "uidmap")
    name = f"sandbox{os.getpid()}"
    command.run(["useradd", "--no-create-home", name], timeout=60)
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        home.chmod(0o755)
        packages = home / "packages"
        for package in ("scripts", "plumbum", "rich", "pygments", "markdown_it", "mdurl"):
            found = importlib.util.find_spec(package)
            assert found and found.submodule_search_locations
            shutil.copytree(found.submodule_search_locations[0], packages / package)
        tar = shutil.copy(place.root, home)
        shutil.copytree(place.bundle, home / "bundle")
        (home / "scratch").mkdir()
        shutil.chown(home / "scratch", name)
        python = readable_python(home)
        prefix = ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups"]
        words = [*prefix, python, "-m", "scripts.local.sandbox", "--root", tar, "--scratch", home / "scratch"]
        env = {"PATH": DEFAULT_PATH, "PYTHONPATH": str(packages), "IRIS_WORKDIR": str(home / "bundle")}

        def run(script: str, size: int) -> command.Result:
            argv = [*words, "--size", str(size), "--", "bash", "-c", script]
            return command.run(argv, timeout=SECONDS, env=env, inherit_env=False, cwd=home, ok=None)

        yield run
        assert not list((home / "scratch").glob("disk-*"))
    finally:
        shutil.rmtree(home)
        command.run(["userdel", name], timeout=60)


def readable_python(home: Path) -> Path:
    """This interpreter, or a copy of it where it lies in a folder that is closed to others."""
    prefix = Path(sys.base_prefix)
    if all(path.stat().st_mode & 0o005 == 0o005 for path in (prefix, *prefix.parents)):
        return Path(sys.executable).resolve()
    unneeded = shutil.ignore_patterns(
        "site-packages", "test", "tests", "__pycache__", "share", "include", "*.a"
    )
    shutil.copytree(prefix, home / "python", symlinks=True, ignore=unneeded)
    return home / "python/bin" / Path(sys.executable).resolve().name


@pytest.mark.parametrize("size", [MEMORY, DISK])
def test_an_ordinary_user_has_the_same_root(
    place: Place, user: Callable[..., command.Result], size: int
) -> None:
    script = "echo $$ $(id -u) $(cat /app/build.sh) $(stat -c %u:%g /etc/shadow) && chown 33:33 /app && "
    result = user(script + EMPTY_EVERYTHING, size)
    assert (result.code, result.stdout) == (0, "1 0 echo built 0:42\nemptied\n"), result.stderr
    assert (place.sentinel / "keep").read_text() == "kept"


ENGINE = """#!/bin/sh
# Stands in for a container engine: keeps its words, and runs the command in namespaces.
printf '%s\\n' "$*" >>{log}
case $1 in run) ;; *) exit 0 ;; esac
test -n "$GITSHA" || exit 99
while [ "$1" != sh ]; do shift; done
shift 4
export PATH={path} IRIS_WORKDIR={bundle}
exec {prefix} "$@"
"""


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that refuses namespaces: PATH with a folder first where its unshare lies."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "unshare").write_text("#!/bin/sh\necho not permitted >&2\nexit 1\n")
    (programs / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs


def test_a_container_engine_takes_over_where_namespaces_are_refused(place: Place, refused: Path) -> None:
    log, path = refused / "log", os.environ["PATH"].removeprefix(f"{refused}:")
    engine = ENGINE.format(log=log, path=path, bundle=place.bundle, prefix=" ".join(place.words()))
    (refused / "docker").write_text(engine)
    (refused / "docker").chmod(0o755)
    result = place.run("echo $$; cat build.sh; exit 5", IRIS_JOB_ENV='{"GITSHA": "a-secret-value"}')
    assert (result.code, result.stdout) == (5, "1\necho built\n"), result.stderr
    words = log.read_text().splitlines()[-1]
    assert "--rm --init=false --network=host" in words
    assert f"--volume={place.bundle}:/app-src:ro" in words
    assert "--env GITSHA" in words and "a-secret-value" not in words


def test_a_machine_with_neither_is_told_so(refused: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("env", "setpriv", "sh", "newuidmap"):
        (refused / name).symlink_to(shutil.which(name) or "/usr/bin/false")
    monkeypatch.setenv("PATH", str(refused))
    script = "from scripts.local import sandbox; sandbox.available()"
    result = command.run([sys.executable, "-c", script], timeout=60, cwd=sandbox.REPOSITORY, ok=None)
    assert "not permitted" in result.stderr and ToolMissing.__name__ in result.stderr
    assert sandbox.NOWHERE in result.stderr


def test_a_root_is_put_into_a_registry_once_and_runs_from_it(
    cache: Path, place: Place, tmp_path: Path
) -> None:
    small = tmp_path / "small" / "root.tar"
    small.parent.mkdir()
    with tarfile.open(small, "w") as out, tarfile.open(place.root) as whole:
        for member in whole:
            content = whole.extractfile(member) if member.isfile() else None
            if not member.ischr() and not member.name.startswith("./var/"):
                out.addfile(member, io.BytesIO(content.read()) if content else None)
    state = tmp_path / "registry"
    port = registry.up(cache, state).port
    try:
        reference = parse(f"127.0.0.1:{port}/test/root:1")
        pushed = roots.image(small, reference, env={"ONE": "1"})
        log = (state / "registry.log").read_text().count("PUT")
        assert roots.image(small, reference, env={"ONE": "1"}) == pushed
        assert (state / "registry.log").read_text().count("PUT") == log
        assert roots.image(small, reference, env={"ONE": "2"}) != pushed
        script = ["sh", "-c", "echo $$ $ONE $PATH; pwd; ls /var"]
        result = sandbox.run_image(pushed, place.scratch, script, size=MEMORY, timeout=SECONDS)
        assert result.stdout == f"1 1 {DEFAULT_PATH}\n/\n"
        assert place.left() == set()
    finally:
        services.down(state, "registry")
