"""One build from commit to report: plan, submit, follow, read what the registry shows.

The same for a cluster and for this machine; only the values of the `Site` differ.
"""

from __future__ import annotations

import base64
import re
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from scripts import command, records
from scripts import source as checkouts
from scripts.catalogue import Image, Resources
from scripts.credentials import Credential, check_kind
from scripts.errors import ConfigurationError, InputError, IrisImagesError, RegistryError, SourceError
from scripts.iris.cli import Iris, Job, JobStatus
from scripts.iris.watch_job_state import watch
from scripts.outcome import explain
from scripts.pins import dockerfile, executors
from scripts.records import Record
from scripts.registry import crane, reference
from scripts.registry import image as registry_image
from scripts.registry.checks import REVISION
from scripts.view import Follower

SCRIPTS = Path(__file__).resolve().parent.parent / "docker"
SHARED = re.compile(r"^# shellcheck source=.*\nsource .*/kaniko\.sh\"?$", re.MULTILINE)
DECODE = 'exec bash -c "$(printf %s "$BUILD_B64" | base64 -d)" build'
PREBUILT, COMPILED = "prebuilt-wheelhouse", "wheel-builder"
POLL_SECONDS = 15.0
"""Between two looks at a job. A call of the iris program takes five seconds of a core."""


@dataclass(frozen=True)
class Site:
    """Where a build runs: every value in which a cluster and this machine differ.

    Attributes:
        name: the cluster's name.
        iris: the iris program, aimed at that cluster.
        repository: where the image goes, as host/path.
        credential: who pushes it.
        executor: the kaniko image; by digest when something is submitted.
        crane_url, crane_sha256: the archive that the task takes crane from.
        task_image: what the task runs in.
        launcher: words before the task's command; what plays the pod where there is none.
        build_args: values for ARGs of the Dockerfile.
        wheelhouse: the prebuilt wheel set, by digest.
        architecture: what is built when nothing was asked for.
        local: this machine: a dirty checkout may be built, resources are small.
    """

    name: str
    iris: Iris
    repository: str
    credential: Credential
    executor: str
    crane_url: str
    crane_sha256: str
    task_image: str
    launcher: tuple[str, ...] = ()
    build_args: dict[str, str] = field(default_factory=dict)
    wheelhouse: str = ""
    architecture: str = "amd64"
    local: bool = False


@dataclass(frozen=True)
class Request:
    """What a person asked for. Empty words mean the image's own value."""

    image: Image
    context: Path
    variant: str = ""
    architecture: str = ""
    wheel_source: str = ""


@dataclass(frozen=True)
class Plan:
    """All that a build will do, decided before anything is done."""

    request: Request
    site: Site
    source: checkouts.Checkout
    destination: reference.Reference
    pins: dict[str, str]
    inputs: dict[str, str]
    resources: Resources

    def job(self, build: str, archive: checkouts.Archive) -> Job:
        """The Iris job of this plan, under the name of the build."""
        pad, half = self.site.credential.halves()
        script = bundled(SCRIPTS.parent / self.request.image.script)
        travelling = {"BUILD_B64": script, "CONTEXT_SHA256": archive.sha256, "REGISTRY_TOKEN_PAD": pad}
        return Job(
            name=build,
            command=(*self.site.launcher, "bash", "-lc", DECODE),
            env={**self.inputs, **travelling},
            secrets={"REGISTRY_TOKEN": half},
            task_image=self.site.task_image,
            cpu=self.resources.cpu,
            memory=self.resources.memory,
            disk=self.resources.disk,
            timeout_seconds=self.resources.timeout_seconds,
            max_retries=self.resources.max_retries,
            gpu=self.resources.gpu or None,
        )

    def facts(self) -> dict[str, object]:
        """What the record of the build says of the plan."""
        return {
            "task": self.request.image.task,
            "variant": self.request.variant,
            "architecture": self.request.architecture or self.site.architecture,
            "cluster": self.site.name,
            "commit": self.source.commit,
            "dirty": self.source.dirty,
            "destination": str(self.destination),
            "pins": self.pins,
            "inputs": self.inputs,
            "resources": asdict(self.resources),
        }


def bundled(script: Path) -> str:
    """A build script with what it shares put into it, in base64 without line breaks: one variable travels."""
    try:
        shared, text = (script.parent / "kaniko.sh").read_text(), script.read_text()
    except FileNotFoundError as missing:
        raise ConfigurationError(f"The build script {missing.filename} does not exist.") from missing
    text, count = SHARED.subn(lambda _: shared, text)
    if count != 1:
        raise ConfigurationError(f"{script} does not source kaniko.sh exactly once.")
    return base64.b64encode(text.encode()).decode()


def plan(request: Request, site: Site) -> Plan:
    """Decide a build and check all that can be checked before it.

    Raises:
        SourceError: the checkout is dirty and the cluster is not this machine.
        InputError: the reference is not valid, or there is no such variant or architecture.
        ConfigurationError: the executor would build the Dockerfile otherwise than written; no wheel set.
        CredentialError: the token is not one of the registry that the image goes to.
    """
    image, checkout = request.image, checkouts.checkout(request.context)
    if checkout.dirty and not site.local:
        raise SourceError(
            f"{checkout.root} differs from its commit {checkout.commit}.",
            "commit or stash: a tag names a commit.",
        )
    text = checkouts.read(checkout, image.dockerfile)
    executors.check_reference(site.executor)
    executors.check_dockerfile(image.dockerfile, text, site.executor)
    architecture = request.architecture or site.architecture
    variant, resources = image.variant(request.variant), image.resources_for(architecture, local=site.local)
    if architecture != site.architecture:
        raise InputError(
            f"kaniko builds only for the machine that it runs on, and {site.name} is {site.architecture}.",
            f"build {architecture} on a cluster that has such machines: --cluster=…",
        )
    tag = image.pinned_tag(request.variant, checkout.revision, architecture)
    destination = reference.parse(f"{site.repository}:{tag}")
    check_kind(destination.host, site.credential.token)
    inputs = {
        "GITSHA": checkout.revision,
        "IMAGE_REPOSITORY": destination.repository,
        "TAG_PREFIX": variant.tag_prefix,
        "DOCKERFILE": image.dockerfile,
        "LAYER_CEILING": str(image.layer_ceiling),
        "REGISTRY_USER": site.credential.user,
        "EXECUTOR_IMAGE": site.executor,
        "CRANE_URL": site.crane_url,
        "CRANE_SHA256": site.crane_sha256,
        "BUILD_ARGS": "\n".join(f"{name}={value}" for name, value in site.build_args.items()),
        **variant.inputs,
        **resources.inputs,
        **_wheels(request, site, resources),
    }
    declared = dockerfile.pins(text)
    given = {**site.build_args, **inputs}
    pins = {name: given.get(name, value) for name, value in declared.items()}
    return Plan(request, site, checkout, destination, pins, inputs, resources)


def _wheels(request: Request, site: Site, resources: Resources) -> dict[str, str]:
    if not request.image.wheels:
        return {}
    chosen = request.wheel_source or resources.inputs.get("WHEEL_SOURCE", PREBUILT)
    if chosen == COMPILED:
        return {"WHEEL_SOURCE": COMPILED}
    if chosen != PREBUILT:
        raise InputError(f"No wheels come from {chosen!r}.", f"--wheel-source is {PREBUILT} or {COMPILED}.")
    if not site.wheelhouse:
        raise ConfigurationError(
            f"No prebuilt wheel set is named for {request.image.name}.",
            "set wheels.<image> (an image by digest), or give --wheel-source=wheel-builder.",
        )
    return {"WHEEL_SOURCE": PREBUILT, "WHEELHOUSE": site.wheelhouse}


def submit(plan: Plan, record: Record) -> None:
    """Submit the job of a plan from a folder that holds the archive and nothing else.

    The record holds the intention before, and the job's id after.
    """
    with tempfile.TemporaryDirectory(prefix="iris-images-") as folder:
        archive = checkouts.archive(plan.source, Path(folder))
        job = plan.job(record.id, archive)
        record.update(
            state="submitting",
            context={"sha256": archive.sha256, "bytes": archive.size},
            argv=command.shown(shortened(plan.site.iris.plan(job), job)),
        )
        job_id = plan.site.iris.submit(job, Path(folder))
    record.update(state="submitted", job=job_id, submitted=records.now())


def outlined(plan: Plan) -> list[str]:
    """The words of a submission before there is an archive to submit."""
    job = plan.job(
        f"{plan.request.image.task}-{plan.source.commit[:12]}",
        checkouts.Archive(Path(checkouts.ARCHIVE), "<sha256>", 0),
    )
    return shortened(plan.site.iris.plan(job), job)


def shortened(argv: list[str], job: Job) -> list[str]:
    """The words of a submission as they are shown and kept: no script, no half of a secret."""
    hidden = {
        job.env["BUILD_B64"]: f"<script, {len(job.env['BUILD_B64'])} characters>",
        job.env["REGISTRY_TOKEN_PAD"]: command.MASK,
    }
    return [hidden.get(word, word) for word in argv]


def follow(iris: Iris, record: Record, credential: Credential) -> None:
    """Watch the job of a record to its end and complete the record.

    Raises:
        RunStepFailed, BuildFailed, …: how the job ended; see docs/exit-codes.md.
        StillRunning: it did not end in twice the time that Iris gives it.
        KeyboardInterrupt: the job goes on.
    """
    log = record.path.with_suffix(".log")
    with Follower(record.data["job"], log) as follower:
        status = watch(
            iris,
            record.data["job"],
            interval=POLL_SECONDS,
            deadline_seconds=_deadline(record),
            on_update=follower.update,
        )
    record.update(ended=records.now(), phases=follower.phases, began=follower.began, iris=_described(status))
    try:
        if failure := explain(status, follower.lines, log):
            raise failure
        record.update(state="pushed", result=inspect(record, credential))
    except IrisImagesError as failure:
        record.update(state="failed", error=str(failure), exit_code=failure.exit_code)
        raise


def inspect(record: Record, credential: Credential) -> dict[str, object]:
    """What the registry shows for the tag that was built: the only word that counts.

    Raises:
        Absent, RegistryError: the tag is not there, or is of another commit or architecture.
    """
    destination, wanted = record.data["destination"], record.data["inputs"]["GITSHA"]
    target = reference.parse(destination)
    architecture = record.data["architecture"]
    with crane.logged_in(target.host, credential) as env:
        pushed = registry_image.look(target, architecture, env=env).image
    if not pushed or pushed.architecture != architecture:
        raise RegistryError(
            f"{destination} is for {pushed.architecture if pushed else 'others'}, not for {architecture}.",
            "somebody else pushed that tag, or the job ran on another kind of machine; build again.",
        )
    revision = pushed.labels.get(REVISION, "")
    if revision != wanted:
        raise RegistryError(
            f"{destination} is of revision {revision or '(no label)'}, not {wanted}.",
            "somebody else pushed that tag, or the Dockerfile does not label GITSHA; build again.",
        )
    return pushed.facts()


def _deadline(record: Record) -> float:
    """Seconds after which nobody need wait: twice what Iris gives the job's attempts, for the queue."""
    resources = record.data["resources"]
    return 2.0 * float(resources["timeout_seconds"]) * (1 + int(resources["max_retries"]))


def _described(status: JobStatus) -> dict[str, object]:
    return {name: str(value) if value is not None else None for name, value in asdict(status).items()}
