"""A stand-in for the agent's own code."""
