"""Every failure that a person can meet: what happened, where, and what to do next.

Each class has its own exit code. docs/exit-codes.md is the same table for readers.
"""

from __future__ import annotations


class IrisImagesError(Exception):
    """A failure with a sentence for a person.

    Args:
        what: one sentence: what happened, and where.
        next_step: one sentence: what to do now. Empty when the first sentence says it.
        detail: lines that help to understand (the tail of a log); printed below, never parsed.
    """

    exit_code = 1

    def __init__(self, what: str, next_step: str = "", detail: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step
        self.detail = detail

    def __str__(self) -> str:
        parts = [
            self.what,
            self.detail and f"\n{self.detail}\n",
            self.next_step and f"Next: {self.next_step}",
        ]
        return "\n".join(part for part in parts if part)


class InputError(IrisImagesError):
    """An argument, a reference or a name that cannot be right."""

    exit_code = 2


class ConfigurationError(IrisImagesError):
    """images.toml, a Dockerfile or Invoke's configuration contradicts itself."""

    exit_code = 3


class SourceError(IrisImagesError):
    """The checkout cannot be built from: dirty, no commit, too large."""

    exit_code = 4


class ToolMissing(IrisImagesError):
    """A program, a package or a capability of this machine is missing."""

    exit_code = 5


class CommandFailed(IrisImagesError):
    """A program ended with a code that was not expected.

    Attributes:
        code: its exit code; negative: the signal that ended it.
        stdout, stderr: all that it wrote, secrets masked.
    """

    exit_code = 6

    def __init__(
        self, what: str, *, code: int, stdout: str = "", stderr: str = "", next_step: str = ""
    ) -> None:
        tail = (stderr or stdout).strip().splitlines()[-10:]
        super().__init__(what, next_step, "\n".join(f"  {line}" for line in tail))
        self.code = code
        self.stdout = stdout
        self.stderr = stderr


class CommandTimeout(IrisImagesError):
    """A program or a server did not answer within its time limit."""

    exit_code = 7


class CredentialError(IrisImagesError):
    """A token that is missing, of the wrong kind, or refused."""

    exit_code = 8


class RegistryError(IrisImagesError):
    """A registry answered with something other than what was asked for."""

    exit_code = 9


class Absent(RegistryError):
    """A registry said, in so many words, that it does not have this."""

    exit_code = 10


class RateLimited(RegistryError):
    """A registry takes no more requests for now.

    Attributes:
        retry_after: seconds after which it takes them again, as it said; None: it did not say.
    """

    exit_code = 14

    def __init__(
        self, what: str, next_step: str = "", detail: str = "", *, retry_after: float | None = None
    ) -> None:
        super().__init__(what, next_step, detail)
        self.retry_after = retry_after


class Damaged(RegistryError):
    """What a registry sent does not match its digest or its size."""

    exit_code = 17


class IrisError(IrisImagesError):
    """Iris could not be reached, or refused the job."""

    exit_code = 11


class JobFailed(IrisImagesError):
    """The job ended in a state other than succeeded, for a reason that the build script does not know."""

    exit_code = 12


class StillRunning(IrisImagesError):
    """The watch ended before the job did; the job goes on."""

    exit_code = 13


class AssertsFailed(IrisImagesError):
    """The asserts of a pushed image failed in it, or it does not hold what runs them."""

    exit_code = 16


class Unfit(IrisImagesError):
    """A pushed image failed a check; the verdict names each."""

    exit_code = 15


class Overtaken(IrisImagesError):
    """Somebody else moves the same tag at the same time."""

    exit_code = 18


class RunStepFailed(IrisImagesError):
    """A RUN step of the Dockerfile failed, an import assert included."""

    exit_code = 20


class BuildFailed(IrisImagesError):
    """The executor failed outside a RUN: base image, COPY, snapshot, disk."""

    exit_code = 21


class WheelsRefused(IrisImagesError):
    """The wheel set is missing, damaged, or was made for other pins."""

    exit_code = 22


class LayersRefused(IrisImagesError):
    """A layer is over the ceiling; nothing was pushed."""

    exit_code = 23


class PushRefused(IrisImagesError):
    """The registry did not take the image."""

    exit_code = 24


class TaskToolsFailed(IrisImagesError):
    """The task could not get crane, the executor or the bundle."""

    exit_code = 25
