"""A stand-in for vLLM for TPU."""

__version__ = "0.20.0"
