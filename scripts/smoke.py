"""One job that runs the asserts of a pushed image in the image itself: a node can pull it and start it.

The task image is the digest and the command is the asserts' argv, so whatever the cluster says of the job it
says of the image. Neither a bundle nor a secret travels.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import records, sites
from scripts.build import POLL_SECONDS
from scripts.catalogue import Image, Resources
from scripts.errors import (
    AssertsFailed,
    CommandTimeout,
    IrisError,
    IrisImagesError,
    JobFailed,
    RegistryError,
    StillRunning,
)
from scripts.iris.cli import Iris, Job, JobState, JobStatus
from scripts.iris.watch_job_state import Update, watch
from scripts.outcome import relevant
from scripts.progress import say
from scripts.records import Record
from scripts.registry import image as registry_image
from scripts.registry.crane import Env
from scripts.registry.reference import Reference
from scripts.settings import LOCAL, Settings
from scripts.view import Follower

CPU, MEMORY = 2, "8GB"
"""Enough to import what an image holds: no asserts compute anything."""
SMALLEST_DISK = 20
"""GB. Iris' own default of 5 GB lets a job land on a node that has no room for the image."""
UNPACKED = 4
"""How many times its compressed size an image takes on a node: the layers as they came, and unpacked."""
TIMEOUT_SECONDS = 1800
"""Kubernetes counts from the creation of the pod, so the pull of 20 GB is in it."""
LOOK_SECONDS = 30
"""Between two looks at why a job does not run."""
PATIENCE_SECONDS = 300
"""How long a node may fail to pull or start the image before that is the answer."""
STUCK = re.compile(r"ImagePull|InvalidImageName|CreateContainer|RunContainerError|CrashLoopBackOff")
"""Why a pod waits that no waiting helps, as Kubernetes and, after it, Iris name it."""
ASSERT = re.compile(r"assert (?:ok|failed): ")
FAILED = "assert failed: "


@dataclass(frozen=True)
class Smoke:
    """What is run: an image by digest, on which cluster, and what its job asks for."""

    image: Image
    reference: Reference
    cluster: str
    resources: Resources

    def job(self, launcher: tuple[str, ...]) -> Job:
        """The job, under a name of its own; `launcher` stands before the command of a local one."""
        return Job(
            name=records.name(f"smoke-{self.image.task}", self.reference.digest.partition(":")[2]),
            command=(*launcher, *self.image.asserts),
            task_image=str(self.reference),
            cpu=self.resources.cpu,
            memory=self.resources.memory,
            disk=self.resources.disk,
            timeout_seconds=self.resources.timeout_seconds,
            gpu=self.resources.gpu or None,
        )


def run(
    settings: Settings, image: Image, reference: Reference, record: Record | None, *, env: Env | None = None
) -> dict[str, Any]:
    """Run the asserts of an image in one job, and add the result to the record of its build.

    Args:
        reference: the image, by digest.
        record: of the build that gave it, where there is one.
        env: an environment for crane; None: this machine's own logins.

    Returns:
        when (UTC), cluster, job, reference, digest, verdict ("pass" or "fail"), asserts (their lines), error
        (empty, or what happened and what to do) and exit_code (0, or the one of docs/exit-codes.md).

    Raises:
        Absent, CredentialError, RegistryError: the registry does not show the image.
        InputError: the image is not built for its architecture.
        IrisError: the job was not submitted, or the controller forgot it.
        KeyboardInterrupt: the job was cancelled.
    """
    with sites.readable(settings):
        smoke = plan(settings, image, reference, env=env)
        with sites.runner(settings, reference, env=env) as (iris, launcher):
            result = _run(smoke, smoke.job(launcher), iris, settings.records / image.name)
    if record:
        record.add("smoked", result)
    return result


def plan(settings: Settings, image: Image, reference: Reference, *, env: Env | None = None) -> Smoke:
    """What the job asks for, from what the registry shows of the image. Errors: see `run`."""
    pushed = registry_image.look(reference, sites.architecture(settings), env=env).image
    if not pushed:
        raise RegistryError(f"{reference} holds no image for {sites.architecture(settings)}.", "push one.")
    local = settings.cluster == LOCAL
    built = image.resources_for(pushed.architecture, local=local)
    return Smoke(image, reference, settings.cluster, built if local else resources(built, pushed.total))


def resources(built: Resources, size: int) -> Resources:
    """What a smoke job asks a cluster for.

    Args:
        built: what a build for the same architecture asks for. Its GPU is asked for here, too, though no
            assert needs one: requests without a GPU land on amd64 nodes, whatever the image is for.
        size: of all layers in bytes, compressed.
    """
    disk = max(SMALLEST_DISK, math.ceil(UNPACKED * size / 1e9))
    return Resources(CPU, MEMORY, f"{disk}GB", TIMEOUT_SECONDS, gpu=built.gpu)


def failure(smoke: Smoke, status: JobStatus, lines: Sequence[str], reason: str) -> IrisImagesError | None:
    """The failure that the end of a smoke job means; None for success. The log explains, and decides nothing.

    Args:
        status: how Iris says that it ended; cancelled, where nobody waited for its end.
        lines: of its log.
        reason: why it did not run, in Iris' words, when that was the last that was known of it.
    """
    if status.state is JobState.SUCCEEDED:
        return None
    where = f"{smoke.reference} at {smoke.cluster}"
    failed = [line for line in lines if line.startswith(FAILED)]
    if status.exit_code and failed:
        count = f"{len(failed)} of {len([line for line in lines if ASSERT.match(line)])}"
        return AssertsFailed(
            f"{count} asserts failed in {where}.",
            "mend the Dockerfile or its pin, build again.",
            "\n".join(f"  {line}" for line in failed),
        )
    tail = "\n".join(f"  {line}" for line in [*relevant(lines), f"Iris: {status.error or status.state}"])
    if status.exit_code:
        argv = " ".join(smoke.image.asserts)
        return AssertsFailed(
            f"The asserts could not be run to their end in {where}: {argv} (exit code {status.exit_code}).",
            "look whether the image holds that program, and is for that architecture.",
            tail,
        )
    why = " ".join((reason or status.error or status.state).split())
    return JobFailed(
        f"{smoke.cluster} could not pull and start {smoke.reference}, or not run it to its end: {why}.",
        "check that its nodes may read the repository and have room for the image.",
        tail,
    )


class _Stuck(Exception):
    """The node has failed to pull or start the image for long enough."""


class _Watched:
    """Shows a job, finds out why it does not run, and ends the watch of one that never will.

    Iris calls a job running as soon as its pod exists; that the pod waits for its image, only the task says.
    A look at the task costs five seconds of a core, so there is none once the job has written a line.
    """

    def __init__(self, iris: Iris, job_id: str, follower: Follower) -> None:
        self._iris, self._job_id, self._follower = iris, job_id, follower
        self._looked = self._since = 0.0
        self.reason = ""

    def update(self, update: Update) -> None:
        self._follower.update(update)
        if self._follower.lines:
            self.reason = ""
        elif update.state is JobState.PENDING:
            self.reason, self._since = update.pending_reason, update.elapsed
        elif not update.state.ended and update.elapsed - self._looked >= LOOK_SECONDS:
            self._looked = update.elapsed
            self._look(update.elapsed)

    def _look(self, elapsed: float) -> None:
        with suppress(IrisError, CommandTimeout):  # the controller being away says nothing about the job
            said = self._iris.waits_for(self._job_id)
            if said != self.reason:
                say(f"{self._job_id}: {said}")
            self.reason = said
        if not STUCK.search(self.reason):
            self._since = elapsed
        elif elapsed - self._since > PATIENCE_SECONDS:
            raise _Stuck


def _run(smoke: Smoke, job: Job, iris: Iris, logs: Path) -> dict[str, Any]:
    """Submit, watch, explain. The log is kept beside the records, under the name of the job."""
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{job.name}.log"
    job_id, status, reason = _watched(job, iris, log)
    lines = log.read_text().splitlines()
    failed = failure(smoke, status, lines, reason)
    return {
        "when": records.now(),
        "cluster": smoke.cluster,
        "job": job_id,
        "reference": str(smoke.reference),
        "digest": smoke.reference.digest,
        "verdict": "fail" if failed else "pass",
        "asserts": [line for line in lines if ASSERT.match(line)],
        "error": str(failed or ""),
        "exit_code": failed.exit_code if failed else 0,
    }


def _watched(job: Job, iris: Iris, log: Path) -> tuple[str, JobStatus, str]:
    """The job's id, how it ended, and why it did not run before; it is over, unless Iris cannot be asked."""
    job_id = ""
    try:
        with tempfile.TemporaryDirectory(prefix="iris-images-") as nothing:
            job_id = iris.submit(job, Path(nothing))
        say(f"submitted {job_id}")
        with Follower(job_id, log) as follower:
            watched = _Watched(iris, job_id, follower)
            try:
                status = watch(
                    iris,
                    job_id,
                    interval=POLL_SECONDS,
                    deadline_seconds=2 * job.timeout_seconds,
                    on_update=watched.update,
                )
            except (StillRunning, _Stuck):
                status = JobStatus(iris.cancel(job_id))
        return job_id, status, watched.reason
    except KeyboardInterrupt:
        _cancel(iris, job, job_id)
        raise


def _cancel(iris: Iris, job: Job, job_id: str) -> None:
    """Take back a job that nobody waits for any more: unlike a build, it is worth nothing unseen."""
    say("Interrupted: the smoke job is cancelled.")
    job_id = job_id or iris.find(job.name)
    if job_id:
        say(f"{job_id}: {iris.cancel(job_id)}")
