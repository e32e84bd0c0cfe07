"""A stand-in for harbor."""

__version__ = "0.9.0"
