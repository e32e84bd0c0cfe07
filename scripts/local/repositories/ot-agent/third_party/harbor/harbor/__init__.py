"""The harbor of the lock, older than the one that the image pins."""

__version__ = "0.8.0"
