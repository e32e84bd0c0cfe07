"""A stand-in for the launcher of RL jobs: the images that it starts, as constants."""

DEFAULT_RL_DOCKER_IMAGE = (
    "ghcr.io/marin-community/marinskyrl"
    # The one before had a layer of 16.6 GB, which no node could pull:
    # @sha256:1111111111111111111111111111111111111111111111111111111111111111
    "@sha256:2222222222222222222222222222222222222222222222222222222222222222"
)
DEFAULT_RL_MEGATRON_DOCKER_IMAGE = "ghcr.io/marin-community/marinskyrl:gpu-rl-megatron"


def image(strategy: str) -> str:
    """The image for a trainer's strategy."""
    return DEFAULT_RL_MEGATRON_DOCKER_IMAGE if strategy == "megatron" else DEFAULT_RL_DOCKER_IMAGE
