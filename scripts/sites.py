"""The places where a build runs: a cluster, or this machine. Here, and only here, their values differ."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
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
from scripts.registry import crane, reference
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


@contextmanager
def registry(settings: Settings) -> Iterator[None]:
    """The local registry lives until the end of the block; on a cluster there is nothing to start."""
    if settings.cluster == LOCAL:
        with machine.registry_up(settings):
            yield
    else:
        yield


def leave_running(settings: Settings) -> None:
    """Keep what a job needs on this machine when nobody watches it any more."""
    if settings.cluster == LOCAL:
        machine.keep(settings)


def _cluster(settings: Settings, image: Image, architecture: str) -> Site:
    if not shutil.which(settings.iris_program):
        raise ToolMissing(
            f"The iris program ({settings.iris_program}) is not on PATH.",
            "install marin-iris of the cluster's vintage, or set iris.program.",
        )
    architecture = architecture or "amd64"
    archive = toolchain.crane_release(MACHINES.get(architecture, architecture))
    return Site(
        name=settings.cluster,
        iris=Iris((settings.iris_program,), ("--cluster", settings.cluster)),
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
