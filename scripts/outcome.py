"""How a job ended, in one sentence: from Iris' state and the task's exit code, with the log as evidence.

The exit codes are those of docker/kaniko.sh. The log never decides success or failure; it says why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from scripts import errors
from scripts.errors import IrisImagesError, JobFailed
from scripts.iris.cli import JobState, JobStatus

RESULT = re.compile(r"iris-images: result=(\S+) code=(\d+): (.*)")
PHASE = re.compile(r"iris-images: phase=(\S+) time=(\S+)$")
RELEVANT_LINES = 15

CAUSES: dict[int, tuple[type[IrisImagesError], str]] = {
    2: (errors.InputError, "correct what the sentence names; nothing was touched."),
    20: (
        errors.RunStepFailed,
        "read the step's own lines above, mend the Dockerfile or its pin, build again.",
    ),
    21: (
        errors.BuildFailed,
        "read the executor's last lines above; a base image or a file that is missing is named there.",
    ),
    22: (
        errors.WheelsRefused,
        "give a wheel set made for these pins, or compile: --wheel-source=wheel-builder.",
    ),
    23: (errors.LayersRefused, "split the step that makes the layer; the tag was not touched."),
    24: (errors.PushRefused, "check the token (write:packages) and the repository; build again."),
    25: (
        errors.TaskToolsFailed,
        "check that the task reaches the registry and the archive that the sentence names.",
    ),
}


def explain(status: JobStatus, lines: Sequence[str], log: Path) -> IrisImagesError | None:
    """The failure that a job's end means; None for success.

    Args:
        status: from Iris' lifecycle.
        lines: the log's last lines.
        log: where the whole log is kept.
    """
    if status.state is JobState.SUCCEEDED:
        return None
    detail = "\n".join(f"  {line}" for line in relevant(lines))
    said = _own_words(status, lines)
    kind, next_step = CAUSES.get((said and status.exit_code) or 0, (JobFailed, f"read {log}."))
    return kind(said or _sentence(status), next_step, detail)


def relevant(lines: Sequence[str]) -> list[str]:
    """The last lines before the script's own, which the sentence repeats."""
    plain = [line for line in lines if line.strip() and not line.startswith("iris-images: ")]
    return plain[-RELEVANT_LINES:]


def _own_words(status: JobStatus, lines: Sequence[str]) -> str:
    """The build script's sentence for the exit code that Iris reports; empty when it said none."""
    phase = ""
    for line in lines:
        if found := PHASE.search(line):
            phase = f" in the phase {found[1]}"
        found = RESULT.search(line)
        if found and status.exit_code == int(found[2]):
            return f"{found[1]}{phase}: {found[3]}."
    return ""


def _sentence(status: JobStatus) -> str:
    if status.state is JobState.KILLED:
        return "The job was cancelled."
    if status.exit_code in (137, -9):
        return "The task was killed from outside: out of memory while a layer was packed is the usual cause."
    return f"The job ended {status.state} ({status.error or 'Iris gives no reason'})."
