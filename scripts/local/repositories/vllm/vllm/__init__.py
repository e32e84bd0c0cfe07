"""A stand-in for the fork of vLLM, versioned by its commit as the real one is."""
