"""A stand-in for TransformerEngine."""

__version__ = "2.11.0"
