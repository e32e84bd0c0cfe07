"""The iris program of every vintage behind one face: the only place that knows its words.

Where vintages differ, the word that all of them have is used: state, status, tasks and stopping go
through `iris rpc controller`, which answers in JSON, takes an id as it is (`job kill` of old vintages
takes it for a prefix) and fails at once where the other commands retry for half an hour.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from scripts import command, credentials
from scripts.errors import (
    CommandTimeout,
    ConfigurationError,
    CredentialError,
    InputError,
    IrisError,
    IrisImagesError,
    SourceError,
    ToolMissing,
)

CALL_SECONDS = 60
SUBMIT_SECONDS = 120
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

# What iris sends along unasked, as job environment or as secret files. Certificates stay.
FORWARDED = ("HF_TOKEN", "WANDB_API_KEY", "CW_KEY_ID", "CW_KEY_SECRET", *credentials.VARIABLES)
CERTIFICATES = ("AWS_CA_BUNDLE",)

# Taken over as it is where it is set; otherwise iris writes its whole argv into the job's environment.
PROVENANCE = json.dumps(
    {
        "tree_hash": "",
        "base_commit": "",
        "dirty": False,
        "branch": None,
        "built_by": None,
        "command_line": [],
    }
)

_LINE = re.compile(r"\[(\d\d:\d\d:\d\d)\] task=(\S+)(?: attempt=\d+)? \| ?(.*)", re.DOTALL)
_NOISE = re.compile(r"[IW]\d{8} |\s|Usage: |Try |Traceback |$|.*Warning: ")

# What iris says, what it means, what to do. The first that fits counts.
_TROUBLES: tuple[tuple[str, type[IrisImagesError], str, str], ...] = (
    (
        "client is too old",
        IrisError,
        "the controller takes no jobs from an iris this old",
        "upgrade marin-iris to within 14 days of the controller's version.",
    ),
    (
        "already exists and is still running",
        IrisError,
        "a job of this name runs already",
        "follow that one with `inv watch`, or cancel it first.",
    ),
    (
        "is unschedulable",
        IrisError,
        "no machine of the cluster can hold what the job asks for",
        "ask for less cpu, memory or disk in docker/images.toml.",
    ),
    (
        "Bundle size",
        SourceError,
        "the bundle is over Iris' limit of 25 MiB",
        "take large files out of the commit or of the context.",
    ),
    (
        "SecretResolutionError",
        CredentialError,
        "iris could not read a secret",
        "check that the token is not empty.",
    ),
    (
        "Unknown cluster",
        ConfigurationError,
        "iris knows no cluster of this name",
        "`iris cluster list` shows those it knows.",
    ),
    (
        "kubectl",
        IrisError,
        "the cluster could not be reached through kubectl",
        "check that kubectl is on PATH and that `kubectl get pods` works with the cluster's kubeconfig.",
    ),
    (
        "kube-config",
        IrisError,
        "the cluster's kubeconfig is missing or not valid",
        "get the kubeconfig and put it where the cluster's iris configuration names it.",
    ),
    (
        "No such command",
        IrisError,
        "this iris lacks a command",
        "upgrade marin-iris.",
    ),
)
_UNREACHABLE = re.compile(
    r"error sending request|Connection refused|failed \(attempt|UNAVAILABLE|[Tt]imed? ?out"
)


class JobState(StrEnum):
    """Where a job is in its life; ABSENT: the controller does not know the id."""

    ABSENT = "absent"
    UNSPECIFIED = "unspecified"
    PENDING = "pending"
    BUILDING = "building"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    KILLED = "killed"
    WORKER_FAILED = "worker_failed"
    UNSCHEDULABLE = "unschedulable"

    @property
    def ended(self) -> bool:
        """Whether this is a state that a job stays in."""
        return self in _ENDS


_ENDS = frozenset(
    {
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.KILLED,
        JobState.WORKER_FAILED,
        JobState.UNSCHEDULABLE,
    }
)


@dataclass(frozen=True)
class Job:
    """What is submitted.

    Attributes:
        name: [a-z0-9-], at most 63 characters, and new: the logs of jobs of one name mix.
        command: the argv of the task; a cluster starts it through bash.
        env: the task's environment, readable by everybody on the cluster.
        secrets: values by name; each becomes a file of that name in $RIGGING_SECRETS_DIR of the task.
        memory, disk: in Iris' notation ("8GB"). Units of cpu are cores.
        gpu: "<type>x<count>", or none.
    """

    name: str
    command: tuple[str, ...]
    cpu: float
    memory: str
    disk: str
    timeout_seconds: int
    task_image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_retries: int = 0
    gpu: str | None = None


@dataclass(frozen=True)
class JobStatus:
    """A job as its controller sees it.

    Attributes:
        error: why it ended, in Iris' words; empty when it did well.
        exit_code: of the task; only when the job failed with one (after a time limit there is none).
        preemptions: how often the cluster took the task's machine away and started it again.
        pending_reason: why it does not run yet, in Iris' words.
    """

    state: JobState
    error: str = ""
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    preemptions: int = 0
    pending_reason: str = ""


@dataclass(frozen=True)
class LogLine:
    """One line that a task wrote: the time of day (UTC, hh:mm:ss), the task's id, the text."""

    time: str
    task: str
    text: str


@dataclass(frozen=True)
class Iris:
    """An iris program and the cluster that it talks to.

    Attributes:
        program: the words that start it.
        target: ("--cluster", name) or ("--controller-url", url).
        options: those of its `job run`; None: it is asked.
    """

    program: tuple[str, ...]
    target: tuple[str, str]
    options: frozenset[str] | None = None

    def plan(self, job: Job) -> list[str]:
        """The argv that submits the job; no secret is in it.

        Raises:
            InputError: the job's name.
            CredentialError: this iris cannot carry secrets out of sight.
        """
        if not NAME.fullmatch(job.name):
            raise InputError(
                f"{job.name!r} is no job name: a-z, 0-9 and - only, at most 63 characters.", "rename it."
            )
        known = run_options(self.program) if self.options is None else self.options
        if job.secrets and "--secret" not in known:
            raise CredentialError(
                "this iris has no --secret, so a token would travel in plain sight.", "upgrade marin-iris."
            )
        options: list[tuple[str, ...]] = [
            ("--no-wait",),
            ("--enable-extra-resources",),
            ("--job-name", job.name),
            ("--cpu", f"{job.cpu:g}"),
            ("--memory", job.memory),
            ("--disk", job.disk),
            ("--timeout", str(job.timeout_seconds)),
            ("--max-retries", str(job.max_retries)),
            *((("--no-sync",),) if "--no-sync" in known else ()),
            *((("--secret-behavior", "isolate"),) if "--secret-behavior" in known else ()),
            *((("--task-image", job.task_image),) if job.task_image else ()),
            *((("--gpu", job.gpu),) if job.gpu else ()),
            *(("--secret", name, f"env:{_private(name)}") for name in job.secrets),
            *(("-e", name, value) for name, value in job.env.items()),
        ]
        words = [word for option in options for word in option]
        return [*self.program, *self.target, "job", "run", *words, "--", *job.command]

    def submit(self, job: Job, workdir: Path) -> str:
        """Send the job with all that lies in `workdir`, and return its id.

        Raises:
            InputError, CredentialError: before anything is sent (see `plan`).
            SourceError: the bundle is too large.
            IrisError, ConfigurationError: the controller refused it, or was not reached.
        """
        argv = self.plan(job)
        private = {_private(name): value for name, value in job.secrets.items()}
        said = _call(argv, SUBMIT_SECONDS, secrets=job.secrets.values(), private=private, cwd=workdir).stdout
        ids = [line.strip() for line in said.splitlines() if line.startswith("/")]
        if len(ids) != 1:
            raise IrisError(
                f"iris took the job {job.name} but named no id for it.", "look for it with `iris job list`."
            )
        return ids[0]

    def find(self, name: str) -> str:
        """The id of the newest job of that name; empty when the controller knows none.

        Raises:
            IrisError: as `state`.
        """
        ids = [str(job["job_id"]) for job in self._rpc("list-jobs", "--json", "{}").get("jobs", [])]
        return next((job_id for job_id in ids if job_id.rpartition("/")[2] == name), "")

    def state(self, job_id: str) -> JobState:
        """Where the job is; ABSENT when the controller does not know it.

        Raises:
            IrisError: the controller was not reached, or said what nobody understands.
        """
        answer = self._rpc("get-job-state", "--json", json.dumps({"job_ids": [job_id]}))
        name = answer.get("states", {}).get(job_id)
        return _state(name) if name else JobState.ABSENT

    def status(self, job_id: str) -> JobStatus:
        """The job's state and what is known about it; an unknown job has the state ABSENT.

        Raises:
            IrisError: as `state`.
        """
        try:
            # The answer also holds the whole request, environment included: nothing but "job" is read.
            job = self._rpc("get-job-status", "--job-id", job_id)["job"]
        except _NotFound:
            return JobStatus(JobState.ABSENT)
        failed = _state(job["state"]) is JobState.FAILED
        return parse_status(job, self._rpc("list-tasks", "--job-id", job_id) if failed else {})

    def waits_for(self, job_id: str) -> str:
        """Why a task's container does not run yet, in Kubernetes' words; empty when it runs or none are said.

        Iris calls a job running as soon as its pod exists: that it waits for its image, only the task says.

        Raises:
            IrisError: as `state`.
        """
        tasks = self._rpc("list-tasks", "--job-id", job_id).get("tasks", [])
        return next((str(task["status_message"]) for task in tasks if task.get("status_message")), "")

    def logs(self, job_id: str, since_ms: int | None = None, max_lines: int = 1000) -> list[LogLine]:
        """The newest lines of the job's tasks, oldest first; none for a job that is not known.

        Args:
            since_ms: only lines after this time, milliseconds since 1970.
            max_lines: how many.

        Raises:
            IrisError: the controller was not reached.
        """
        since = [] if since_ms is None else ["--since-ms", str(since_ms)]
        words = ["job", "logs", "--max-lines", str(max_lines), *since, job_id]
        return parse_logs(_call([*self.program, *self.target, *words], CALL_SECONDS).stdout.splitlines())

    def follow(self, job_id: str) -> subprocess.Popen[bytes]:
        """Start a process that writes the job's lines from the first on, and ends when the job did.

        Its end says nothing about the job: it also ends when the controller went away.
        """
        return command.start(
            [*self.program, *self.target, "job", "logs", "--follow", "--no-tail", job_id],
            env=_environment({}),
            stderr=subprocess.DEVNULL,
        )

    def cancel(self, job_id: str) -> JobState:
        """Stop this job and no other; returns the state that it is in afterwards.

        A job that ended before keeps its state.

        Raises:
            IrisError: there is no such job, it was not reached, or it goes on.
        """
        try:
            self._rpc("terminate-job", "--job-id", job_id)
        except _NotFound as unknown:
            raise IrisError(
                f"there is no job {job_id}.", "`iris job list` shows those there are."
            ) from unknown
        state = self.state(job_id)
        if not state.ended:
            raise IrisError(f"{job_id} was cancelled and is still {state}.", "look again in a minute.")
        return state

    def _rpc(self, method: str, *words: str) -> dict[str, Any]:
        argv = [*self.program, *self.target, "rpc", "controller", method, *words]
        said = _call(argv, CALL_SECONDS).stdout
        try:
            answer: dict[str, Any] = json.loads(said or "{}")
        except json.JSONDecodeError as broken:
            raise IrisError(
                f"iris rpc {method} answered with something other than JSON.", "upgrade marin-iris."
            ) from broken
        return answer


class _NotFound(IrisError):
    """The controller has no job of that id."""


@functools.cache
def run_options(program: tuple[str, ...]) -> frozenset[str]:
    """The options that `job run` of this iris has: its vintage. Asked once a process, for seconds."""
    said = _call([*program, "job", "run", "--help"], CALL_SECONDS).stdout
    return frozenset(re.findall(r"(?<![\w-])--[a-z][a-z-]*", said))


def parse_status(job: Mapping[str, Any], tasks: Mapping[str, Any]) -> JobStatus:
    """A status out of the `job` of get-job-status and the answer of list-tasks (for a failed job)."""
    state = _state(job["state"])
    codes = [code for task in tasks.get("tasks", []) if (code := task.get("exit_code"))]
    return JobStatus(
        state=state,
        error=job.get("error", ""),
        # The job's own exit_code is 0 in every vintage, and a task's is 0 after a time limit.
        exit_code=codes[0] if state is JobState.FAILED and codes else None,
        started_at=_time(job.get("started_at")),
        finished_at=_time(job.get("finished_at")),
        preemptions=int(job.get("preemption_count", 0)),
        pending_reason=job.get("pending_reason", ""),
    )


def parse_logs(lines: Iterable[str], last: LogLine | None = None) -> list[LogLine]:
    """The lines of `job logs`; one without a prefix belongs to the line before it (`last` at first)."""
    parsed: list[LogLine] = []
    for line in lines:
        if match := _LINE.fullmatch(line):
            last = LogLine(*match.groups())
        else:
            last = LogLine(last.time if last else "", last.task if last else "", line)
        parsed.append(last)
    return parsed


def explain(said: str, code: int) -> IrisImagesError:
    """The error for what iris wrote on standard error before it ended with that code."""
    lines = [line for line in said.splitlines() if not _NOISE.match(line)][-3:]
    detail = "\n".join(f"  {line[:500]}" for line in lines)
    last = "\n".join(lines)
    if re.search(r"\bJob \S+ not found", last):
        return _NotFound("the controller does not know this job.", "", detail)
    for words, kind, what, next_step in _TROUBLES:
        if words in last:
            return kind(f"iris: {what}.", next_step, detail)
    if _UNREACHABLE.search(said):
        return _unreachable(lines[-1:] or said.splitlines()[-1:])
    return IrisError(f"iris ended with exit code {code}.", "read what it said above.", detail)


def _unreachable(lines: list[str]) -> IrisError:
    return IrisError(
        "iris did not reach the controller.",
        "check the cluster's name and your way to it (`inv local.up` starts the local one); "
        "after a submission look at `iris job list` before you repeat it.",
        "\n".join(f"  {line[:500]}" for line in lines),
    )


def _call(
    argv: list[str],
    timeout: float,
    *,
    secrets: Iterable[str] = (),
    private: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> command.Result:
    """Run iris; its failures are IrisError and its like, with its last words and never its argv."""
    secrets, said = list(secrets), list[str]()
    try:
        result = command.run(
            argv,
            timeout=timeout,
            env=_environment(private or {}, secrets),
            cwd=cwd,
            secrets=secrets,
            ok=None,
            on_line=said.append,
        )
    except CommandTimeout as late:
        raise _unreachable([*said[-1:], f"no answer within {timeout:g} s"]) from late
    except ToolMissing as missing:
        raise ToolMissing(missing.what, "pip install marin-iris, or put its iris on PATH.") from missing
    if result.code:
        raise explain(result.stderr, result.code)
    return result


def _environment(private: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str | None]:
    """Changes for iris' environment: nothing in it that iris would send along, or that holds a secret."""
    hidden = set(filter(None, secrets))
    taken = {
        name: None
        for name, value in os.environ.items()
        if name in FORWARDED
        or (name.startswith("AWS_") and name not in CERTIFICATES)
        or any(secret in value for secret in hidden)
    }
    # A tunnel and the local controller end on this machine; a proxy knows nothing of them.
    direct = ",".join(filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1"]))
    return {**taken, "NO_PROXY": direct, "no_proxy": direct, "MARIN_PROVENANCE": PROVENANCE, **private}


def _private(name: str) -> str:
    return f"IRIS_IMAGES_SECRET_{re.sub('[^A-Za-z0-9]', '_', name)}"


def _state(name: str) -> JobState:
    try:
        return JobState(name.removeprefix("JOB_STATE_").lower())
    except ValueError as unknown:
        raise IrisError(
            f"iris reports a job state that is not known here: {name}.", "upgrade this tool."
        ) from unknown


def _time(value: Mapping[str, str] | None) -> datetime | None:
    return datetime.fromtimestamp(int(value["epoch_ms"]) / 1000, UTC) if value else None
