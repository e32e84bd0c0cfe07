"""A stand-in for the part of harbor that resumes a job: a changed configuration is only warned of."""

import json
import warnings
from pathlib import Path


class Job:
    """A job with a configuration, kept in a folder of its own."""

    def __init__(self, folder: Path, config: dict) -> None:
        self.folder, self.config = folder, config

    def start(self) -> None:
        """Begin a new job; a folder that exists belongs to another one."""
        if self.folder.exists():
            raise FileExistsError(self.folder)
        self.folder.mkdir()
        self._write()

    def resume(self) -> None:
        """Go on with a job, whatever its configuration was."""
        existing_config = json.loads((self.folder / "config.json").read_text())
        if existing_config != self.config:
            warnings.warn(f"{self.folder} was begun with another configuration.", stacklevel=2)
        self._write()

    def _write(self) -> None:
        (self.folder / "config.json").write_text(json.dumps(self.config))
