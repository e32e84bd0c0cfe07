"""Measures this project against named peers in one run, as ratios (`nox -s bench`). It asserts nothing.

Arguments choose among the parts; without any, all run.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.bench import building, reading, releasing, verifying, wheels

PARTS = {
    "building": building.run,
    "verifying": verifying.run,
    "reading": reading.run,
    "releasing": releasing.run,
    "wheels": wheels.run,
}


def main() -> None:
    """Run the chosen measurements and print one line each."""
    for name in sys.argv[1:] or PARTS:
        with tempfile.TemporaryDirectory(prefix="iris-images-bench-") as folder:
            PARTS[name](Path(folder))


if __name__ == "__main__":
    main()
