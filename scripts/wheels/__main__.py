"""What `nox -s wheels` calls. The wheelhouse's folder goes to standard output."""

from __future__ import annotations

import argparse
import sys

from scripts import settings
from scripts.wheels import compile, sets
from scripts.wheels.session import configuration, ended


def main() -> int:
    """Make a wheel set; returns the exit code (docs/exit-codes.md)."""
    parser = argparse.ArgumentParser(
        prog="nox -s wheels --",
        description="Compile a wheel set, check it and put it into the wheelhouse. "
        "MAX_JOBS and NVCC_THREADS follow from cores and memory; set, they are taken as they are.",
    )
    parser.add_argument("--set", default="", choices=sets.names(), help="of docker/wheel-sets")
    parser.add_argument("--architecture", default="", choices=["amd64", "arm64"], help="by default this one")
    parser.add_argument("--engine", default="native", choices=list(compile.ENGINES))
    wanted = parser.parse_args()
    request = compile.Request(wanted.set, wanted.architecture, wanted.engine)
    return ended(lambda: print(compile.make(request, settings.read(configuration()))))


if __name__ == "__main__":
    sys.exit(main())
