"""Questions to a registry, asked by the crane binary.

crane ends with code 1 for every failure, so the registry's own word on standard error decides.
"Absent" is believed only from MANIFEST_UNKNOWN and NAME_UNKNOWN (distribution specification, "Error codes").
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts import command
from scripts.credentials import Credential
from scripts.errors import Absent, CommandFailed, CredentialError, RegistryError
from scripts.registry.reference import Reference

TIMEOUT = 120.0
ABSENT = ("MANIFEST_UNKNOWN", "NAME_UNKNOWN")
REFUSED = ("UNAUTHORIZED", "DENIED")


HELPER = """#!/bin/sh
printf '{"Username":"%s","Secret":"%s"}' "$IRIS_IMAGES_USER" "$IRIS_IMAGES_TOKEN"
"""


@contextmanager
def logged_in(host: str, credential: Credential) -> Iterator[dict[str, str | None]]:
    """An environment for crane that knows one credential, without writing it to a file.

    crane asks a credential helper, and ours answers from the environment of crane itself.
    """
    with tempfile.TemporaryDirectory(prefix="iris-images-") as folder:
        helper = Path(folder) / "docker-credential-iris-images"
        helper.write_text(HELPER)
        helper.chmod(0o700)
        Path(folder, "config.json").write_text(json.dumps({"credHelpers": {host: "iris-images"}}))
        yield {
            "DOCKER_CONFIG": folder,
            "DOCKER_AUTH_CONFIG": None,
            "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}",
            "IRIS_IMAGES_USER": credential.user,
            "IRIS_IMAGES_TOKEN": credential.token,
        }


def digest(reference: Reference, *, env: Mapping[str, str | None] | None = None) -> str:
    """The digest that the registry gives for a reference.

    Raises:
        Absent: the registry says that it has no such tag or repository.
        CredentialError, RegistryError: any other answer.
    """
    return ask(["digest", str(reference)], env=env)


def manifest(reference: Reference, *, env: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """The manifest, as the registry keeps it. Errors: see `digest`."""
    found: dict[str, Any] = json.loads(ask(["manifest", str(reference)], env=env))
    return found


def config(reference: Reference, *, env: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """The image's configuration: env, labels, history, architecture. Errors: see `digest`."""
    found: dict[str, Any] = json.loads(ask(["config", str(reference)], env=env))
    return found


def ask(words: list[str], *, env: Mapping[str, str | None] | None = None, timeout: float = TIMEOUT) -> str:
    """Run crane and give back its standard output.

    Raises:
        Absent, CredentialError, RegistryError: what the registry answered, in one sentence.
        CommandTimeout: no answer within `timeout` seconds.
    """
    try:
        return command.run(["crane", *words], timeout=timeout, env=env).stdout.strip()
    except CommandFailed as failed:
        raise _explained(words, failed) from failed


def _explained(words: list[str], failed: CommandFailed) -> RegistryError | CredentialError:
    said = (failed.stderr.strip().splitlines() or ["nothing"])[-1]
    target = words[-1]
    if any(word in failed.stderr for word in ABSENT):
        return Absent(f"{target} does not exist: the registry says so.", detail=f"  {said}")
    if any(word in failed.stderr for word in REFUSED):
        return CredentialError(
            f"The registry refused to answer about {target}.",
            "log in to it (crane auth login), or check that the token may read that package.",
            f"  {said}",
        )
    return RegistryError(
        f"crane {words[0]} {target} failed.", "try again; if it stays, ask the registry.", f"  {said}"
    )
