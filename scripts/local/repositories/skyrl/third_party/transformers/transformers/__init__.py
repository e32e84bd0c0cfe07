"""A stand-in for transformers."""

__version__ = "5.8.1"
