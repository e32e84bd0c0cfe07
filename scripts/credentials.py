"""The registry's token: where it comes from, what kind it is, and how it travels to the task.

It is never an argument, a file or a line of a log. Iris hands a secret to the task as a file and a
variable as a variable, and a RUN of the Dockerfile can read either. So the token travels as two halves
that give it only together: a random pad (variable) and the token combined with it (secret).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from scripts import command
from scripts.errors import CredentialError, IrisImagesError

VARIABLES = ("REGISTRY_TOKEN", "GHCR_TOKEN", "DOCKER_TOKEN")
DOCKER_HUB_PREFIX = "dckr_pat_"


@dataclass(frozen=True)
class Credential:
    """A user and a token of a registry. The token is in no representation of it."""

    user: str
    token: str = field(repr=False)

    def halves(self) -> tuple[str, str]:
        """A pad and the token under it, in hexadecimal digits, of equal length; new at each call."""
        token = self.token.encode()
        pad = secrets.token_bytes(len(token))
        return pad.hex(), bytes(a ^ b for a, b in zip(token, pad, strict=True)).hex()


def made_up() -> Credential:
    """A credential for a registry that asks for none, so that the task gets one as it would elsewhere."""
    return Credential("local", secrets.token_urlsafe(24))


def find(host: str, user: str, environ: Mapping[str, str] = os.environ) -> Credential:
    """The credential for a registry: from the environment, or for ghcr.io from the gh program.

    Args:
        host: the registry, as in a reference.
        user: its user; empty: REGISTRY_USER, or for ghcr.io the account of gh.

    Raises:
        CredentialError: there is none, or it is of a kind that this registry cannot take.
    """
    name = next((name for name in VARIABLES if environ.get(name)), "")
    token = environ[name] if name else _gh("auth", "token") if host == "ghcr.io" else ""
    user = user or environ.get("REGISTRY_USER", "") or (_gh("api", "user", "--jq", ".login") if token else "")
    if not token or not user:
        raise CredentialError(
            f"No {'token' if not token else 'user'} for {host}.",
            "set REGISTRY_USER and REGISTRY_TOKEN, or for ghcr.io: gh auth login --scopes write:packages.",
        )
    check_kind(host, token)
    return Credential(user, token)


def check_kind(host: str, token: str) -> None:
    """Refuse a token that this registry cannot take, before three hours are spent on it.

    Raises:
        CredentialError: a Docker Hub token for another registry, or white space in it.
    """
    if token.startswith(DOCKER_HUB_PREFIX) and host != "docker.io":
        raise CredentialError(
            f"The token is one of Docker Hub ({DOCKER_HUB_PREFIX}…), but the image goes to {host}.",
            "use a token of that registry; for ghcr.io a GitHub token with write:packages.",
        )
    if not token.isascii() or any(character.isspace() for character in token):
        raise CredentialError(
            "The token holds white space or characters that no token has.", "copy it again."
        )


def _gh(*words: str) -> str:
    try:
        return command.output(["gh", *words], timeout=30)
    except IrisImagesError:
        return ""
