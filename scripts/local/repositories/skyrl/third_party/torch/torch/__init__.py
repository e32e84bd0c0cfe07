"""A stand-in for torch: its name and its version."""

__version__ = "2.11.0+cu129"
