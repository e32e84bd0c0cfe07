"""The crane program of google/go-containerregistry, installed beside this environment's Python."""

from __future__ import annotations

import sysconfig
from pathlib import Path


def program() -> Path:
    """Where this environment's crane lies."""
    return Path(sysconfig.get_path("scripts")) / "crane"
