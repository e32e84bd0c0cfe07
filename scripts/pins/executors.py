"""What a kaniko executor cannot do. What it would build wrong without a word is refused before the build.

Measured with the forks named here: the archived upstream's family runs no heredoc body and ignores
`RUN --mount`, ends with success, and pushes. A numbered stage may be pruned as unused, and files
below /kaniko never reach the image, in every fork. Secrets are not handed to any executor by the
build scripts, so a secret mount finds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from scripts.errors import ConfigurationError, InputError
from scripts.pins.dockerfile import features
from scripts.registry import reference

MAINTAINED = "ghcr.io/osscontainertools/kaniko:v1.28.3"
ARCHIVED = ("kaniko-project/", "googlecontainertools/kaniko")
"""How the paths of the archived upstream's images begin, in whichever registry."""
FLOATING = ("", "latest", "debug", "slim", "warmer")
EVERY = frozenset({"mount-secret", "mount-ssh", "numbered-stage", "writes-kaniko"})


@dataclass(frozen=True)
class Family:
    """Executors of one origin and the Dockerfile syntax that they do not build as written."""

    name: str
    cannot: frozenset[str]


UPSTREAM = Family(
    "the archived upstream's family", EVERY | {"heredoc", "mount-cache", "mount-bind", "mount-tmpfs"}
)
OSS = Family("the maintained fork", EVERY)


def family(image: str) -> Family:
    """The family of an executor image; one that is not known is trusted with the least."""
    return OSS if "osscontainertools/kaniko" in image else UPSTREAM


def check_reference(image: str) -> None:
    """Refuse an executor that is archived or that floats.

    Raises:
        InputError: names the image and what to use instead.
    """
    parsed = reference.parse(image)
    if parsed.path.startswith(ARCHIVED):
        raise InputError(f"{image} is archived since June 2025 and gets no fixes.", f"use {MAINTAINED}.")
    if not parsed.digest and parsed.tag in FLOATING:
        raise InputError(
            f"{image} floats: two builds may get two executors.", "give a version tag or a digest."
        )


def check_dockerfile(path: str, text: str, image: str) -> None:
    """Refuse a Dockerfile that this executor would build otherwise than written.

    Raises:
        ConfigurationError: names the first line, the syntax and the executor's family.
    """
    cannot = family(image).cannot
    for feature in [feature for feature in features(text) if feature.name in cannot][:1]:
        raise ConfigurationError(
            f"{path}, line {feature.line}: {feature.name} is not built as written by "
            f"{family(image).name} ({image}).",
            "write it without, or set executor.image to an executor that knows it.",
        )
