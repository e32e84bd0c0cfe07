"""A stand-in for Megatron's bridge."""

__version__ = "0.5.0"
