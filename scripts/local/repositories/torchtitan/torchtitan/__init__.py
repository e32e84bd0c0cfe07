"""A stand-in for torchtitan."""

__version__ = "0.2.0"
