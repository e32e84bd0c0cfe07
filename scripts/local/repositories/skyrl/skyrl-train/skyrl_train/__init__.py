"""A stand-in for the trainer."""
