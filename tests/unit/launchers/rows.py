# ruff: noqa
"""Tables in other shapes: dicts in dicts, and a list of rows that name themselves."""

from types import MappingProxyType

NESTED = MappingProxyType(
    {
        "amd64": {
            "standard": {
                "digest": "sha256:1111111111111111111111111111111111111111111111111111111111111111",
                "tag": "gpu-rl-1111111111111111111111111111111111111111",
            },
            "megatron": {
                "digest": "sha256:1111111111111111111111111111111111111111111111111111111111111111",
                "tag": "gpu-rl-megatron-1111111111111111111111111111111111111111",
            },
        },
        "arm64": {
            "standard": {"digest": "sha256:1111111111111111111111111111111111111111111111111111111111111111"}
        },
    }
)
LISTED = [
    dict(
        architecture="amd64",
        variant="standard",
        image="ghcr.io/marin-community/marinskyrl@sha256:1111111111111111111111111111111111111111111111111111111111111111",
    ),
    {
        "architecture": "amd64",
        "variant": "megatron",
        "image": "ghcr.io/marin-community/marinskyrl@sha256:1111111111111111111111111111111111111111111111111111111111111111",
    },
]
