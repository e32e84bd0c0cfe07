# ruff: noqa
"""Two constants that are bumped in one commit; the strategy chooses."""

import os
from typing import Final

# Why the plain image: it is smaller.
DEFAULT_RL_DOCKER_IMAGE: Final[str] = (
    "ghcr.io/marin-community/marinskyrl@sha256:1111111111111111111111111111111111111111111111111111111111111111"
)
DEFAULT_RL_MEGATRON_DOCKER_IMAGE = os.environ.get(
    "RL_IMAGE",
    "ghcr.io/marin-community/marinskyrl"
    "@sha256:1111111111111111111111111111111111111111111111111111111111111111",
)


def image(strategy: str) -> str:
    return DEFAULT_RL_MEGATRON_DOCKER_IMAGE if strategy == "megatron" else DEFAULT_RL_DOCKER_IMAGE


def other() -> str:
    DEFAULT_RL_DOCKER_IMAGE = "local:name"  # another scope
    return DEFAULT_RL_DOCKER_IMAGE
