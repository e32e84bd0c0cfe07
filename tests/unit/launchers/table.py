"""A table of images by architecture and variant; what rows have in common are constants."""

from dataclasses import dataclass
from enum import StrEnum


class Architecture(StrEnum):
    AMD64 = "amd64"
    ARM64 = "arm64"


class Variant(StrEnum):
    STANDARD = "standard"
    MEGATRON = "megatron"


@dataclass(frozen=True)
class Image:
    architecture: Architecture
    variant: Variant
    digest: str
    tag: str
    source_commit: str
    harbor_commit: str


SOURCE_COMMIT = "1111111111111111111111111111111111111111"
ARM64_SOURCE_COMMIT = "2222222222222222222222222222222222222222"
HARBOR_COMMIT = "3333333333333333333333333333333333333333"

IMAGES = {
    (Architecture.AMD64, Variant.STANDARD): Image(
        architecture=Architecture.AMD64,
        variant=Variant.STANDARD,
        digest="sha256:1111111111111111111111111111111111111111111111111111111111111111",
        tag=f"gpu-rl-{SOURCE_COMMIT}",
        source_commit=SOURCE_COMMIT,
        harbor_commit=HARBOR_COMMIT,
    ),
    # The two of amd64 come from one commit.
    (Architecture.AMD64, Variant.MEGATRON): Image(
        architecture=Architecture.AMD64,
        variant=Variant.MEGATRON,
        digest="sha256:2222222222222222222222222222222222222222222222222222222222222222",
        tag=f"gpu-rl-megatron-{SOURCE_COMMIT}",
        source_commit=SOURCE_COMMIT,
        harbor_commit=HARBOR_COMMIT,
    ),
    (Architecture.ARM64, Variant.STANDARD): Image(
        architecture=Architecture.ARM64,
        variant=Variant.STANDARD,
        digest="sha256:1111111111111111111111111111111111111111111111111111111111111111",
        tag=f"gpu-rl-{ARM64_SOURCE_COMMIT}",
        source_commit=ARM64_SOURCE_COMMIT,
        harbor_commit=HARBOR_COMMIT,
    ),
}
