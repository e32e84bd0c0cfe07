"""What the sessions of nox share: the settings, as a task has them, and how they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from invoke.config import Config

from scripts.errors import IrisImagesError
from scripts.progress import say
from scripts.wheels import sets

INTERRUPTED = "Interrupted. The same command goes on with what is missing."


def ended(act: Callable[[], object]) -> int:
    """Act with the programs of this environment; how it ended, as an exit code and a sentence."""
    # uv of this environment comes first, as if it was activated.
    os.environ["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
    try:
        act()
    except IrisImagesError as failure:
        say(str(failure))
        return failure.exit_code
    except KeyboardInterrupt:
        say(INTERRUPTED)
        return 130
    return 0


def configuration() -> Config:
    """Invoke's configuration as a task would see it: of the project, of the user, of the environment."""
    config = Config(project_location=sets.ROOT)
    config.load_project()
    config.load_shell_env()
    return config
