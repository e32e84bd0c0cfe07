"""The places where a build runs: a cluster, or this machine. Here, and only here, their values differ."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from scripts import credentials
from scripts.build import Site
from scripts.catalogue import Image
from scripts.errors import ToolMissing
from scripts.iris.cli import Iris
from scripts.local import machine, toolchain
from scripts.pins import executors
from scripts.records import Record
from scripts.registry import access, crane, reference
from scripts.registry.access import Accesses
from scripts.registry.reference import Reference
from scripts.settings import LOCAL, Settings

TASK_IMAGE = "docker.io/library/ubuntu:22.04"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@contextmanager
def opened(settings: Settings, image: Image, architecture: str = "") -> Iterator[Site]:
    """A site that a build can be submitted to; what it needs on this machine runs until the end of the block.

    Tags of the executor and of the wheel set are resolved to digests here, once.

    Raises:
        ToolMissing, CredentialError, RegistryError: what is missing for a submission.
    """
    if settings.cluster == LOCAL:
        with machine.site(settings, image) as site:
            yield _pinned(site)
    else:
        site = _cluster(settings, image, architecture)
        host = reference.parse(f"{site.repository}:tag").host
        yield _pinned(replace(site, credential=credentials.find(host, settings.registry_user)))


def outline(settings: Settings, image: Image, architecture: str = "") -> Site:
    """The same site for a plan that is only shown: nothing is started, asked or made.

    Tags stand where a submission has digests, and the local set-up's values for the Dockerfile are left out.
    """
    if settings.cluster == LOCAL:
        return machine.outline(settings, image)
    return _cluster(settings, image, architecture)


@contextmanager
def attached(settings: Settings, image: Image) -> Iterator[Site]:
    """The site of a job that was submitted before: nothing is made for it, and no credential looked for."""
    if settings.cluster == LOCAL:
        with machine.attached(settings, image) as site:
            yield site
    else:
        yield _cluster(settings, image, "")


def credential(settings: Settings, record: Record) -> credentials.Credential:
    """Who may read back what a record's job pushed.

    Raises:
        CredentialError: there is none for that registry.
    """
    if settings.cluster == LOCAL:
        return machine.credential()
    return credentials.find(reference.parse(record.data["destination"]).host, settings.registry_user)


def repository(settings: Settings, image: Image) -> str:
    """Where the image goes by these settings, as host/path; nothing is started for it."""
    if settings.repository or settings.cluster != LOCAL:
        return settings.repository or image.repository
    return machine.repository(settings, image)


def architecture(settings: Settings) -> str:
    """What an image is for when nobody said."""
    return toolchain.architecture() if settings.cluster == LOCAL else "amd64"


@contextmanager
def readable(settings: Settings) -> Iterator[None]:
    """The local registry and sources can be read until the end of the block; elsewhere nothing is started."""
    if settings.cluster == LOCAL:
        with machine.readable(settings):
            yield
    else:
        yield


@contextmanager
def asking(settings: Settings, *images: Image) -> Iterator[Accesses]:
    """Access to registries, the user's token for those of these images; the local one lives meanwhile."""
    own = {reference.parse(f"{repository(settings, image)}:tag").host for image in images}
    with readable(settings), access.opened(settings.registry_user, own) as accesses:
        yield accesses


@contextmanager
def runner(
    settings: Settings, reference: Reference, *, env: crane.Env | None = None
) -> Iterator[tuple[Iris, tuple[str, ...]]]:
    """Where a job runs in an image given by digest: its Iris, and the words before the job's command.

    A cluster takes the image as the task image and needs no words. `env` is for crane.

    Raises:
        ToolMissing, RegistryError: what is missing for a submission.
    """
    if settings.cluster == LOCAL:
        with machine.runner(settings, reference, env=env) as found:
            yield found
    else:
        yield _iris(settings), ()


@contextmanager
def writing(settings: Settings, host: str) -> Iterator[Mapping[str, str | None]]:
    """An environment of crane with which a registry takes a write, until the end of the block.

    Raises:
        CredentialError: there is no credential for that registry.
    """
    local = settings.cluster == LOCAL
    found = machine.credential() if local else credentials.find(host, settings.registry_user)
    with crane.logged_in(host, found) as env:
        yield env


def leave_running(settings: Settings) -> None:
    """Keep what a job needs on this machine when nobody watches it any more."""
    if settings.cluster == LOCAL:
        machine.keep(settings)


def _iris(settings: Settings) -> Iris:
    if not shutil.which(settings.iris_program):
        raise ToolMissing(
            f"The iris program ({settings.iris_program}) is not on PATH.",
            "install marin-iris of the cluster's vintage, or set iris.program.",
        )
    return Iris((settings.iris_program,), ("--cluster", settings.cluster))


def _cluster(settings: Settings, image: Image, architecture: str) -> Site:
    iris = _iris(settings)
    architecture = architecture or "amd64"
    archive = toolchain.crane_release(MACHINES.get(architecture, architecture))
    return Site(
        name=settings.cluster,
        iris=iris,
        repository=settings.repository or image.repository,
        credential=credentials.Credential(settings.registry_user or "<user>", "<token>"),
        executor=settings.executor_image or executors.MAINTAINED,
        crane_url=archive.url,
        crane_sha256=archive.sha256,
        task_image=TASK_IMAGE,
        wheelhouse=settings.wheels.get(image.name, ""),
        architecture=architecture,
    )


def _pinned(site: Site) -> Site:
    executors.check_reference(site.executor)
    return replace(site, executor=_by_digest(site.executor), wheelhouse=_by_digest(site.wheelhouse))


def _by_digest(text: str) -> str:
    found = reference.parse(text) if text else None
    return text if not found or found.digest else str(found.at(crane.digest(found)))
