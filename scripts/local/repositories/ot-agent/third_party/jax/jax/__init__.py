"""A stand-in for JAX."""

__version__ = "0.9.0"
