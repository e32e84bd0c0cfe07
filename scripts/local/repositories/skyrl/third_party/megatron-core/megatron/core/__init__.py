"""A stand-in for Megatron's core."""

__version__ = "0.18.0"
