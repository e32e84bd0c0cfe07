"""The crane wheel: where its program comes from, what it is for, and that this version is fit."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scripts import command
from scripts.errors import CommandFailed
from scripts.local import registry, services, toolchain

PROJECT = toolchain.CRANE_WHEEL
VERSION = "0.22.1"
NO_GO = "/usr/bin:/bin"
NO_ARCHIVE = "http://127.0.0.1:1"
WAIT_SECONDS = 900
FILE, LINK, SYMLINK = tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE


def built(folder: Path, project: Path = PROJECT, **env: str) -> Path:
    """The wheel of that project, built by pip under that environment."""
    argv = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, project]
    command.run(argv, env={"no_proxy": "127.0.0.1", **env}, timeout=WAIT_SECONDS)
    (wheel,) = folder.glob("*.whl")
    return wheel


def program(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(f"crane-{VERSION}.data/scripts/crane")


@pytest.fixture
def releases(tmp_path: Path) -> Iterator[str]:
    """The address of a loopback server whose release archive holds a program that says 'released'."""
    for machine in ("Linux_x86_64", "Linux_arm64", "Darwin_x86_64", "Darwin_arm64"):
        archive = tmp_path / f"www/v{VERSION}/go-containerregistry_{machine}.tar.gz"
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:gz") as tar:
            add(tar, "crane", content=b"#!/bin/sh\necho released\n")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "www"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_archive_with_the_right_checksum_is_used_and_nothing_is_compiled(
    releases: str, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    archives = sorted((tmp_path / "www").rglob("*.tar.gz"))
    (project / "checksums.txt").write_text(
        "".join(
            f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.parent.name}/{file.name}\n"
            for file in archives
        )
    )
    wheel = built(tmp_path / "dist", project, CRANE_WHEEL_RELEASES=releases, PATH=NO_GO)
    environment = tmp_path / "environment"
    command.run([sys.executable, "-m", "venv", environment], timeout=WAIT_SECONDS)
    command.run([environment / "bin/pip", "install", "--no-index", wheel], timeout=WAIT_SECONDS)
    assert command.output([environment / "bin/crane"]) == "released"
    where = "import crane; print(crane.program())"
    assert command.output([environment / "bin/python", "-c", where]) == str(environment / "bin/crane")


def test_an_archive_with_a_wrong_checksum_is_refused(releases: str, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed) as refused:
        built(tmp_path / "dist", CRANE_WHEEL_RELEASES=releases)
    assert "is not the one in checksums.txt" in refused.value.stdout + refused.value.stderr
    assert not list(tmp_path.glob("dist/*.whl"))


def test_without_archive_and_go_it_is_compiled_by_the_packaged_go(tmp_path: Path) -> None:
    wheel = built(
        tmp_path,
        PATH=NO_GO,
        CRANE_WHEEL_RELEASES=NO_ARCHIVE,
        GOFLAGS="-mod=vendor",
        GOROOT="/nowhere",
        GOWORK="/nowhere/go.work",
    )
    crane = tmp_path / "crane"
    crane.write_bytes(program(wheel))
    crane.chmod(0o755)
    assert command.output([crane, "version"]) == VERSION
    assert b"/ld-linux" not in crane.read_bytes(), "it is not static"


def test_a_wheel_for_another_machine_has_its_tag_and_its_program(tmp_path: Path) -> None:
    wheel = built(tmp_path, CRANE_WHEEL_RELEASES=NO_ARCHIVE, CRANE_WHEEL_TARGET="darwin/arm64")
    assert wheel.name == f"crane-{VERSION}-py3-none-macosx_12_0_arm64.whl"
    mach_o_64, arm64 = 0xFEEDFACF, 0x0100000C
    header = program(wheel)
    assert [int.from_bytes(header[at : at + 4], "little") for at in (0, 4)] == [mach_o_64, arm64]


def add(
    tar: tarfile.TarFile,
    name: str,
    kind: bytes = FILE,
    target: str = "",
    content: bytes = b"",
    mode: int = 0o755,
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size, member.mode = kind, target, len(content), mode
    tar.addfile(member, io.BytesIO(content))


def layers(folder: Path) -> list[Path]:
    """Sixty layers of 200 kB and more, as other builders write them: '.', links, whiteouts."""
    paths = []
    for number in range(60):
        path = folder / f"{number:02}.tar"
        with tarfile.open(path, "w") as tar:
            add(tar, ".", tarfile.DIRTYPE)
            add(tar, f"./layer/{number}", content=bytes([number]) * 200_000)
            add(tar, f"layer/hard{number}", LINK, f"layer/{number}")
            add(tar, "newest", SYMLINK, f"layer/{number}")
            add(tar, f"opaque/{number}", content=b"x")
            if number % 3 == 2:
                add(tar, f"layer/.wh.{number - 1}")
                add(tar, f"layer/.wh.hard{number - 1}")
            if number == 40:
                add(tar, "opaque/.wh..wh..opq")
        paths.append(path)
    return paths


def expected() -> Mapping[str, object]:
    kept = [number for number in range(60) if number % 3 != 1]
    return {
        "newest": "layer/59",
        **{f"layer/{number}": bytes([number]) * 200_000 for number in kept},
        **{f"layer/hard{number}": bytes([number]) * 200_000 for number in kept},
        **{f"opaque/{number}": b"x" for number in range(40, 60)},
    }


def tree(root: Path) -> Mapping[str, object]:
    return {
        str(path.relative_to(root)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_sixty_layers_with_dot_links_and_whiteouts_are_exported_whole(cache: Path, tmp_path: Path) -> None:
    """Versions before this one hang on many layers, or refuse an entry named '.'."""
    crane = toolchain.crane()
    assert command.output([crane, "version"]).removeprefix("v") == VERSION
    running = registry.up(cache, tmp_path)
    image = f"127.0.0.1:{running.port}/sixty/layers:all"
    files = [word for path in layers(tmp_path) for word in ("--new_layer", path)]
    try:
        command.run([crane, "append", *files, "--new_tag", image], timeout=120)
        command.run([crane, "export", image, tmp_path / "out.tar"], timeout=120)
    finally:
        services.down(tmp_path, "registry")
    (tmp_path / "root").mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "out.tar", "-C", tmp_path / "root"], check=True)
    assert tree(tmp_path / "root") == expected()
