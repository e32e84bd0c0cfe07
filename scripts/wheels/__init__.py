"""Compiles the CUDA wheels that a later build installs, checks them, and says for what they were made."""
