"""The tasks as a person runs them, against servers of this test run, and checkouts to build from."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts import command
from tests.conftest import git

ROOT = Path(__file__).resolve().parents[2]
INV = Path(sys.executable).with_name("inv")
BUILD_SECONDS = 900.0
TOKEN = "made-up-token-7f3a9c21d5"
PROBE = """\
ARG BASE_IMAGE
ARG PYTHON_VERSION=
ARG OT_AGENT_REPO=
ARG OT_AGENT_COMMIT=
ARG HARBOR_REPO=
ARG HARBOR_COMMIT=
FROM ${BASE_IMAGE}
"""
"""The head of a small Dockerfile that takes the values of a local tpu build."""
SMALL = "FROM scratch\nCOPY docker /docker\n"
"""Steps that leave the base image out: a build of a second, for what does not need a RUN."""
LABEL = """
ARG GITSHA=unknown
LABEL org.opencontainers.image.revision="${GITSHA}"
"""


@dataclass(frozen=True)
class Place:
    """A state folder with its servers, and the environment that leads the tasks there."""

    state: Path
    env: dict[str, str | None] = field(default_factory=dict)

    def inv(self, *words: str, ok: tuple[int, ...] = (0,), **env: str) -> command.Result:
        """Run a task to its end."""
        changes = {"INVOKE_PATHS_STATE": str(self.state), **self.env, **env}
        return command.run([INV, *words], timeout=BUILD_SECONDS, cwd=ROOT, env=changes, ok=ok)

    def build(
        self, task: str, *words: str, ok: tuple[int, ...] = (0,), **env: str
    ) -> tuple[dict[str, Any], str]:
        """Build an image; returns the record and what a person was shown."""
        result = self.inv(f"build.{task}", "--json", *words, ok=ok, **env)
        record: dict[str, Any] = json.loads(result.stdout)
        return record, result.stderr

    def log(self, record: dict[str, Any]) -> str:
        """The kept log of a build."""
        return (self.state / "records" / record["image"] / f"{record['id']}.log").read_text()


def context(
    folder: Path, steps: str, files: Mapping[str, str] | None = None, *, ceiling: int = 4_000_000_000
) -> Path:
    """A git checkout whose Dockerfile.tpu has those steps on the local base image, and these files."""
    docker = folder / "docker"
    docker.mkdir(parents=True)
    (docker / "Dockerfile.tpu").write_text(PROBE + steps + LABEL)
    table = (ROOT / "docker/images.toml").read_text().replace("4_000_000_000", str(ceiling))
    (docker / "images.toml").write_text(table)
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "context")
    return folder


def files(reference: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of every regular file in every layer of an image, and of its configuration."""
    folder.mkdir(parents=True)
    yield "config", command.output(["crane", "config", reference]).encode()
    manifest = json.loads(command.output(["crane", "manifest", reference]))
    for number, layer in enumerate(manifest["layers"]):
        tar = folder / f"{number}.tar.gz"
        with tar.open("wb") as out:
            blob = f"{reference.split('@')[0]}@{layer['digest']}"
            process = command.start(["crane", "blob", blob], stdout=out)
            assert process.wait(BUILD_SECONDS) == 0
        with tarfile.open(tar) as opened:
            for member in opened:
                content = opened.extractfile(member) if member.isfile() else None
                yield f"{number}:{member.name}", content.read() if content else b""


def processes() -> dict[int, str]:
    """The command line of every process of this machine."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[int(path.parent.name)] = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def without_tokens() -> dict[str, str | None]:
    """Changes that take a person's own credentials out of the environment."""
    return {name: None for name in os.environ if "TOKEN" in name or name.startswith("REGISTRY_")}
