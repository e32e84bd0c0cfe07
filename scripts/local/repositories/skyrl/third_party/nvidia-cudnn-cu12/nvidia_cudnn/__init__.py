"""A stand-in for a large CUDA library: it gets a layer of its own."""

__version__ = "9.19.0.56"
