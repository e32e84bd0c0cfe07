"""The Debian roots that a local build stands on, made once by mmdebstrap.

The task root plays the cluster's task image (docker.io/library/ubuntu:22.04); the base root is the base
image of the Dockerfiles. Both trust what the machine trusts, because a RUN behind a TLS-inspecting proxy
fails without it.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from scripts import cache, command
from scripts.errors import Absent, ToolMissing
from scripts.local import certificates, toolchain
from scripts.progress import step
from scripts.registry import crane
from scripts.registry.reference import Reference

# All that docker/kaniko.sh calls and that Debian's minimal root lacks.
TASK_PACKAGES = ("ca-certificates", "curl")
# What both Dockerfiles install: present already, their apt-get takes a moment instead of a minute.
BASE_PACKAGES = (
    *TASK_PACKAGES,
    *("git", "build-essential", "python3", "python3-dev", "python3-pip"),
    *("rdma-core", "ibverbs-providers", "libibverbs1", "librdmacm1", "ibverbs-utils"),
)
UNREAD = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/lib/udev/hwdb.d/*",
    # Link-time optimisation, sanitizers, static Pythons: a quarter of the base, which each build unpacks.
    "/usr/bin/*lto-dump*",
    "/usr/lib/gcc/*/*/lto1",
    "/usr/lib/gcc/*/*/lib?san*.a",
    "/usr/lib/*/lib?san.so*",
    "/usr/lib/python3*/config-*/*.a",
)
SUITE_ELSEWHERE = "bookworm"
CERTIFICATES = "/usr/local/share/ca-certificates/machine.crt"
LABEL = "iris-images.root"
MINUTES = 60.0  # in seconds
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def task_root(folder: Path) -> Path:
    """The tar of the root that plays the task image, from the cache folder; made where it is missing.

    Raises:
        ToolMissing: mmdebstrap is not there and may not be installed.
        CommandFailed: it could not make the root (its last lines are in the error).
    """
    return _root(folder, "task-root", TASK_PACKAGES)


def base_root(folder: Path) -> Path:
    """The tar of the root that is the base image of a local build. Errors: see `task_root`."""
    return _root(folder, "base-root", BASE_PACKAGES)


def image(root: Path, reference: Reference, *, env: Mapping[str, str]) -> Reference:
    """Put a root into a registry as an image of one layer, unless it is there; its reference by digest.

    Args:
        root: the tar of a root.
        reference: where to put it, with a tag.
        env: the image's environment beside PATH.

    Raises:
        RegistryError: the registry cannot be asked, or does not take it.
    """
    made_of = cache.key(root.parent.name, json.dumps(dict(env), sort_keys=True))
    if _label(reference) != made_of:
        _push(root, reference, env=env, made_of=made_of)
    return reference.at(crane.digest(reference))


def system_program(name: str, *packages: str) -> None:
    """Make sure that a program of the system is there: installs its packages where that is allowed.

    Raises:
        ToolMissing: says the one line that installs it.
        CommandFailed: the installation failed.
    """
    if shutil.which(name):
        return
    line = f"apt-get install --yes --no-install-recommends {' '.join(packages)}"
    if os.geteuid() or not shutil.which("apt-get"):
        raise ToolMissing(f"{name} is not on PATH.", f"install it as root: {line}")
    with step(f"installing {name} (apt-get)") as news:
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        for words in (["apt-get", "update"], line.split()):
            command.run(words, timeout=15 * MINUTES, env=env, on_line=news)


def _root(folder: Path, name: str, packages: tuple[str, ...]) -> Path:
    words = [*_mmdebstrap(), f"--include={','.join(packages)}"]
    bundle = certificates.bundle()

    def make(part: Path) -> None:
        # the keyring: elsewhere than on Debian, nothing else brings it
        system_program("mmdebstrap", "mmdebstrap", "debian-archive-keyring")
        trust = f"--customize-hook=upload {bundle} {CERTIFICATES}"
        rehash = '--customize-hook=chroot "$1" update-ca-certificates'
        with step(f"{name} (mmdebstrap)") as news:
            argv = [*words, trust, rehash, _suite(), str(part / "root.tar")]
            command.run(argv, timeout=30 * MINUTES, on_line=news)

    return cache.entry(folder, name, cache.key(_suite(), *words, bundle), make) / "root.tar"


def _mmdebstrap() -> list[str]:
    excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in UNREAD]
    mode = "unshare" if os.geteuid() else "root"
    # dpkg need not wait for the disk: a root that is cut short is thrown away as a whole.
    return ["mmdebstrap", f"--mode={mode}", "--variant=minbase", "--dpkgopt=force-unsafe-io", *excluded]


def _suite() -> str:
    """The machine's own release where it is Debian, so that its keys are those of its mirror."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        return SUITE_ELSEWHERE
    return system.get("VERSION_CODENAME", SUITE_ELSEWHERE) if system["ID"] == "debian" else SUITE_ELSEWHERE


def _label(reference: Reference) -> str:
    try:
        found = crane.config(reference).get("config", {}).get("Labels") or {}
    except Absent:
        return ""
    return str(found.get(LABEL, ""))


def _push(root: Path, reference: Reference, *, env: Mapping[str, str], made_of: str) -> None:
    """One layer on nothing, then its configuration: crane does these in two steps, the label comes last."""
    system = f"linux/{toolchain.architecture()}"
    words = [f"--env={name}={value}" for name, value in {"PATH": PATH, **env}.items()]
    words.append(f"--label={LABEL}={made_of}")
    with step(f"{reference} (crane)"), tempfile.TemporaryDirectory(dir=root.parent.parent) as folder:
        # Fast rather than small: it never leaves this machine.
        layer = Path(folder, "layer.tar.gz")
        with root.open("rb") as plain, layer.open("wb") as out, gzip.GzipFile("", "wb", 1, out, 0) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)
        crane.ask(
            ["append", "--oci-empty-base", f"--new_layer={layer}", "--new_tag", str(reference)],
            timeout=10 * MINUTES,
        )
        crane.ask(
            ["mutate", *words, "--cmd=bash", f"--set-platform={system}", f"--tag={reference}", str(reference)]
        )
