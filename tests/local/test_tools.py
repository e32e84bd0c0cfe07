"""The compiled tools, for real: the registry's memory, the executor, and what tasks fetch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import command
from scripts.errors import ToolMissing
from scripts.local import certificates, registry, services, tool_images, toolchain

ROOT = Path(__file__).parents[2]
BCRYPT_OF_SECRET = "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"


@pytest.fixture
def local(cache: Path, tmp_path: Path) -> Iterator[str]:
    """Host and port of a fresh registry."""
    running = registry.up(cache, tmp_path)
    yield f"127.0.0.1:{running.port}"
    services.down(tmp_path, "registry")


def crane(*words: str | Path) -> str:
    return command.output([toolchain.crane(), *words])


def push_file(reference: str, folder: Path) -> str:
    with tarfile.open(folder / "layer.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    return crane("append", "--new_layer", folder / "layer.tar", "--new_tag", reference)


def exported(reference: str, file: Path) -> tarfile.TarFile:
    crane("export", reference, file)
    return tarfile.open(file)


def stored(state: Path) -> dict[str, int]:
    """Every file that the registry keeps, with the time of its last change."""
    data = state / "registry-data"
    return {str(file): file.stat().st_mtime_ns for file in data.rglob("*") if file.is_file()}


def test_a_restart_keeps_port_tag_and_blobs(cache: Path, local: str, tmp_path: Path) -> None:
    digest = push_file(f"{local}/some/image:tag", tmp_path)
    assert services.down(tmp_path, "registry")
    running = registry.up(cache, tmp_path)
    assert f"127.0.0.1:{running.port}" == local
    assert digest == f"{local}/some/image@{crane('digest', f'{local}/some/image:tag')}"
    assert exported(digest, tmp_path / "out.tar").getnames() == ["empty"]


def test_a_deleted_image_is_gone(local: str, tmp_path: Path) -> None:
    digest = push_file(f"{local}/some/image:tag", tmp_path)
    crane("delete", digest)
    assert crane("ls", f"{local}/some/image") == ""


def test_two_registries_take_two_ports_and_a_taken_port_is_said(
    cache: Path, local: str, tmp_path: Path
) -> None:
    other = registry.up(cache, tmp_path / "other", name="mirror")
    services.down(tmp_path / "other", "mirror")
    assert f"127.0.0.1:{other.port}" != local
    with pytest.raises(ToolMissing, match="taken by another program"):
        registry.up(cache, tmp_path / "third", port=int(local.split(":")[1]))


def test_a_registry_with_users_refuses_a_stranger(cache: Path, tmp_path: Path) -> None:
    users = tmp_path / "htpasswd"
    users.write_text(f"somebody:{BCRYPT_OF_SECRET}\n")
    running = registry.up(cache, tmp_path, htpasswd=users)
    url = f"http://127.0.0.1:{running.port}/v2/"
    try:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url)
        command.run(["curl", "-sSf", "--noproxy", "*", "-u", "somebody:secret", url], timeout=30)
    finally:
        services.down(tmp_path, "registry")


def test_a_compile_that_was_killed_leaves_nothing_that_is_used(tmp_path: Path) -> None:
    """A maker dies without a chance to clean up; the next one makes the whole entry."""
    program = (
        "import pathlib, sys; from scripts.local import toolchain as t; t.registry(pathlib.Path(sys.argv[1]))"
    )
    killed = subprocess.Popen([sys.executable, "-c", program, tmp_path], cwd=ROOT, start_new_session=True)
    while not list(tmp_path.glob(".go-tools-*.part")):
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not list(tmp_path.glob("go-tools-*"))
    made = toolchain.registry(tmp_path)
    assert toolchain.REGISTRY.version in command.output([made, "--version"])
    assert not list(tmp_path.glob(".go-tools-*.part"))


def test_without_a_go_on_path_the_packaged_one_is_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert shutil.which("go") is None
    go = toolchain.go(cache)
    assert go.is_relative_to(cache)
    (tmp_path / "main.go").write_text('package main\nfunc main() { println("ran") }\n')
    assert command.run([go, "run", tmp_path / "main.go"], timeout=300).stderr.strip() == "ran"


def test_the_executor_says_its_version(cache: Path, tmp_path: Path) -> None:
    """In a chroot of its own mount namespace, as everything that starts an executor must."""
    (tmp_path / "kaniko").mkdir()
    shutil.copy(toolchain.executor(cache), tmp_path / "kaniko" / "executor")
    namespaces = ["--mount", *(["--map-root-user"] if os.geteuid() else [])]
    says = command.output(["unshare", *namespaces, "chroot", tmp_path, "/kaniko/executor", "version"])
    assert toolchain.EXECUTOR.version in says


def test_the_executor_image_holds_two_files_and_is_pushed_once(
    cache: Path, local: str, tmp_path: Path
) -> None:
    arguments = toolchain.crane(), local, toolchain.executor(cache)
    image = tool_images.executor_image(*arguments)
    with exported(image, tmp_path / "image.tar") as tar:
        program, authorities = tar.getmember("kaniko/executor"), "kaniko/ssl/certs/ca-certificates.crt"
        assert program.mode == 0o755
        assert tar.extractfile(authorities).read() == certificates.bundle().read_bytes()  # type: ignore[union-attr]
    config = json.loads(crane("config", image))
    assert config["config"]["Labels"]["org.opencontainers.image.source"] == "https://github.com/coder/kaniko"
    assert (config["os"], config["architecture"]) == ("linux", toolchain.architecture())
    before = stored(tmp_path)
    assert tool_images.executor_image(*arguments) == image
    assert stored(tmp_path) == before
    again = tool_images.executor_image(*arguments, repository="other/executor")
    assert again.split("@")[1] == image.split("@")[1]


def test_curl_fetches_crane_from_the_local_registry(local: str, tmp_path: Path) -> None:
    archive = tool_images.crane_archive(toolchain.crane(), local)
    assert tool_images.crane_archive(toolchain.crane(), local) == archive
    command.run(["curl", "-sSf", "--noproxy", "*", "-o", tmp_path / "crane.tar.gz", archive.url], timeout=60)
    command.run(["sha256sum", "-c"], text_in=f"{archive.sha256}  {tmp_path}/crane.tar.gz\n", timeout=60)
    command.run(["tar", "-xzf", tmp_path / "crane.tar.gz", "-C", tmp_path], timeout=60)
    assert command.output([tmp_path / "crane", "version"])


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_cluster_fetches_the_release_that_the_wheel_pins(machine: str) -> None:
    release = toolchain.crane_release(machine)
    version = command.output([toolchain.crane(), "version"]).removeprefix("v")
    assert f"/v{version}/go-containerregistry_Linux_" in release.url
    assert len(release.sha256) == 64


def test_a_port_that_another_program_took_in_the_meantime_is_not_ours(tmp_path: Path) -> None:
    port = services.free_port()
    other = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(3)"
    start = f"subprocess.Popen([sys.executable, '-c', {other!r}], start_new_session=True)"
    late = f"import subprocess, sys, time; {start}; time.sleep(2); sys.exit(3)"
    with pytest.raises(ToolMissing, match=r"ended at once \(exit code 3\)"):
        services.up(tmp_path, "late", [sys.executable, "-c", late], port=port)
