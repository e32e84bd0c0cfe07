"""The small git repositories that a local build uses in place of the real ones.

Each is made from a folder of scripts/local/repositories: real projects with a real uv.lock, the giants
among their packages replaced by stand-ins. git serves them on 127.0.0.1 as a forge would: any commit
can be fetched by its hash. The Dockerfiles are the production ones; only the values of the ARGs named
here differ.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.cache import entry, key, locked
from scripts.command import output, run
from scripts.local import certificates, sandbox, services
from scripts.pins import dockerfile
from scripts.progress import step

DOCKER = Path(__file__).parents[2] / "docker"
TEMPLATES = Path(__file__).with_name("repositories")
LOCKED = ("skyrl", "ot-agent")
PINS: Mapping[str, Mapping[str, str]] = {
    "gpu-rl": {
        "SKYRL": "skyrl",
        "FLASH_ATTN": "flash-attention",
        "VLLM_FORK": "vllm",
        "TORCHTITAN": "torchtitan",
        "HARBOR": "harbor",
    },
    "tpu": {"OT_AGENT": "ot-agent", "HARBOR": "harbor"},
}
"""For each image, the ARGs `<name>_REPO` and `<name>_COMMIT` and the repository that stands behind them."""

# A commit's hash is over its author, its dates and its tree: the same for everybody, at any time.
IDENTITY: Mapping[str, str | None] = {
    "GIT_AUTHOR_NAME": "iris-images",
    "GIT_AUTHOR_EMAIL": "iris-images@localhost",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "iris-images",
    "GIT_COMMITTER_EMAIL": "iris-images@localhost",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    # Set inside a git hook, and then they would point at the person's own repository.
    **dict.fromkeys(("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")),
}

COMPILE_BYTES = 3 * 1000**3
"""What the disposable root of the wheels may grow to."""
COMPILE = """set -e
exec 3>&1 >&2
PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir "uv==$UV_VERSION"
for part in environment flash-attn vllm manifest; do ./compile-wheels.sh "$part"; done
tar -C /wheels -c . | base64 --wrap=0 >&3
"""


@dataclass(frozen=True)
class Sources:
    """The repositories in the cache, and where they are served.

    Attributes:
        folder: the cache entry; it holds `<name>.git` for each repository.
        port: of the git server on 127.0.0.1.
        commits: the one commit of each repository, 40 hexadecimal digits.
    """

    folder: Path
    port: int
    commits: Mapping[str, str]

    def url(self, name: str) -> str:
        """Where a repository is fetched from."""
        return f"git://127.0.0.1:{self.port}/{self.folder.name}/{name}.git"

    def build_args(self, image: str) -> dict[str, str]:
        """The values of the source ARGs of an image's Dockerfile (gpu-rl, tpu)."""
        pins = PINS.get(image, {}).items()
        return {f"{arg}_REPO": self.url(name) for arg, name in pins} | {
            f"{arg}_COMMIT": self.commits[name] for arg, name in pins
        }


def up(cache: Path, state: Path, *, on_demand: bool = True) -> services.Running:
    """Serve the repositories of the cache on 127.0.0.1, unless they are served already.

    The port of the first time is kept in the state folder, so that a repository keeps its address.
    What was made by `make` is served, whenever it was made; nothing else of the cache is.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with locked(state / "git.port.lock"):
        port = int(services.kept(state / "git.port", lambda: str(services.free_port())))
    return services.up(
        state,
        "git",
        [
            *("git", "daemon", "--listen=127.0.0.1", f"--port={port}", "--reuseaddr"),
            *(f"--base-path={cache}", "--informative-errors", "--verbose", cache),
        ],
        port=port,
        on_demand=on_demand,
    )


def make(cache: Path, port: int) -> Sources:
    """The repositories, from the cache or made now (a few seconds: uv resolves two locks).

    Raises:
        CommandFailed: git or uv; without an index uv cannot lock.
    """
    files = sorted(path for path in TEMPLATES.rglob("*") if path.is_file() and path.suffix != ".pyc")
    names = "\n".join(str(path.relative_to(TEMPLATES)) for path in files)
    folder = entry(cache, "sources", key(names, *files), _make)
    commits = {path.stem: _git(path, "rev-parse", "HEAD") for path in sorted(folder.glob("*.git"))}
    return Sources(folder, port, commits)


def python_version(cache: Path, root: Path) -> str:
    """The minor version (3.11) of the system's Python in the tar of a root, for the ARG PYTHON_VERSION."""

    def look(folder: Path) -> None:
        with tarfile.open(root) as tar:
            link = next(member.linkname for member in tar if member.name.endswith("usr/bin/python3"))
        (folder / "version").write_text(Path(link).name.removeprefix("python"))

    # Kept, because finding one name takes a second: a tar has no table of contents.
    return (entry(cache, "python-version", root.parent.name, look) / "version").read_text()


def wheels(cache: Path, sources: Sources, root: Path, scratch: Path) -> Path:
    """The wheel set for the local pins: vllm, flash_attn, MANIFEST and SHA256SUMS, in a folder of the cache.

    It is compiled by the steps of the Dockerfile's own stage, in a disposable root of the local base image:
    an extension loads only into the Python that it was compiled for. The repositories must be served.

    Args:
        root: the tar of the base root.
        scratch: see sandbox.command_prefix.

    Raises:
        CommandFailed: a step failed (its last lines are in the error).
    """
    pins = dockerfile.pins((DOCKER / "Dockerfile.gpu-rl").read_text())
    # The port may change, and the wheels are still those of the commits.
    pins |= {"PYTHON_VERSION": python_version(cache, root)} | sources.build_args("gpu-rl")
    made_of = {name: value for name, value in pins.items() if not name.endswith("_REPO")}
    steps = sorted((DOCKER / "steps").iterdir())
    name = key(json.dumps(made_of), root.parent.name, *steps)
    return entry(cache, "wheels", name, lambda folder: _compile(folder, pins, root, scratch))


def _compile(folder: Path, pins: Mapping[str, str], root: Path, scratch: Path) -> None:
    """The wheel set comes out as text, the one thing that leaves a disposable root."""
    prefix = sandbox.command_prefix(root, scratch, COMPILE_BYTES)
    job_env = json.dumps({**pins, **certificates.DEBIAN_ENV})
    env = {"IRIS_WORKDIR": str(DOCKER / "steps"), "IRIS_JOB_ENV": job_env}
    with step("compiling the small wheel set") as news:
        result = run([*prefix, "sh", "-c", COMPILE], timeout=900, env=env, on_line=news)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(result.stdout.split()[-1]))) as tar:
        for member in filter(tarfile.TarInfo.isfile, tar):
            content = tar.extractfile(member)
            (folder / Path(member.name).name).write_bytes(content.read() if content else b"")


def _make(folder: Path) -> None:
    for template in sorted(TEMPLATES.iterdir()):
        _repository(template, folder / f"{template.name}.git")


def _repository(template: Path, bare: Path) -> None:
    """A bare repository with one commit: the template, and its lock where it has one."""
    with TemporaryDirectory() as temporary:
        work = Path(temporary) / template.name
        # Not the modes of the checkout: they depend on a person's umask.
        no_bytecode = shutil.ignore_patterns("__pycache__")
        shutil.copytree(template, work, ignore=no_bytecode, copy_function=shutil.copyfile)
        if template.name in LOCKED:
            run([uv(), "lock", "--project", work, "--python", sys.executable], timeout=300)
        _git(work, "init", "--quiet", "--initial-branch=main", "--object-format=sha1")
        _git(work, "add", "--all")
        _git(work, "commit", "--quiet", "--message", f"A small {template.name}")
        _git(work, "clone", "--quiet", "--bare", work, bare)
    _git(bare, "config", "uploadpack.allowAnySHA1InWant", "true")
    (bare / "git-daemon-export-ok").touch()


def _git(folder: Path, *words: str | Path) -> str:
    return output(["git", "-C", folder, *words], env=IDENTITY)


def uv() -> str:
    """The uv of this environment, else the one on PATH."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else "uv"
