"""What the trainer imports from torchtitan."""


class ExpertParallel:
    """A stand-in for the expert-parallel plan."""
