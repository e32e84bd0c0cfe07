"""The tasks of iris-images. `inv --list` shows them; `inv --help build.gpurl` explains one.

A task parses, calls and prints; what it calls lies in scripts/. The modules behind a task are
imported when it runs, so that `inv --list` stays quick.
"""

from __future__ import annotations

import json as json_module
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from scripts import catalogue
from scripts.errors import IrisImagesError

ROOT = Path(__file__).resolve().parent
# crane and uv of this environment come first, as if it was activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

BUILD_HELP = {
    "cluster": "where the job runs; 'local' is an Iris of our own on this machine",
    "context": "the git checkout that holds docker/; this repository by default; never written",
    "variant": "a variant of the image, as the catalogue names it (gpurl: megatron)",
    "architecture": "amd64 or arm64; by default amd64, locally that of this machine",
    "wheel-source": "prebuilt-wheelhouse (default) or wheel-builder (compile in the build)",
    "dry-run": "print the plan and the exact command; change nothing",
    "json": "print the record on standard output, and nothing else there",
    "wait": "--no-wait returns after the submission",
}
JOB_HELP = {
    "build": "a build of the records; the image's newest by default",
    "cluster": "the cluster it runs on",
}


@contextmanager
def told() -> Iterator[None]:
    """End with a failure's own sentence and exit code (docs/exit-codes.md)."""
    try:
        yield
    except IrisImagesError as failure:
        raise Exit(str(failure), code=failure.exit_code) from failure
    except KeyboardInterrupt as interrupt:
        raise Exit("Interrupted. The same command continues with what is missing.", code=130) from interrupt


with told():
    IMAGES = catalogue.load(ROOT)


def build_task(image: catalogue.Image) -> Callable[..., None]:
    """The task that builds one image of the catalogue."""

    def build(
        c: Context,
        cluster: str = "",
        context: str = str(ROOT),
        variant: str = "",
        architecture: str = "",
        wheel_source: str = "",
        dry_run: bool = False,
        json: bool = False,
        wait: bool = True,
    ) -> None:
        with told():
            from scripts import build, run, settings

            chosen = catalogue.of_context(Path(context), image)
            request = build.Request(chosen, Path(context), variant, architecture, wheel_source)
            options = run.Options(dry_run=dry_run, json=json, wait=wait)
            run.build_image(request, settings.read(c.config, cluster), options)

    build.__doc__ = f"Build and push {image.name}: {image.about}."
    return build


def record_task(image: catalogue.Image) -> Callable[..., None]:
    """The task that shows the record of one image's newest build."""

    def record(c: Context, build: str = "") -> None:
        with told():
            from scripts import records, settings

            found = records.load(settings.read(c.config).records, image.name, build)
            print(json_module.dumps(found.data, indent=2))

    record.__doc__ = f"Print the record of the newest build of {image.name}."
    return record


@task(help=JOB_HELP)
def watch(c: Context, build: str = "", cluster: str = "") -> None:
    """Follow a job that was submitted, to its end and its report."""
    with told():
        from scripts import run, settings

        run.watch_job(settings.read(c.config, cluster), build)


@task(help=JOB_HELP)
def logs(c: Context, build: str = "", cluster: str = "") -> None:
    """Print the log of a job."""
    with told():
        from scripts import run, settings

        run.print_log(settings.read(c.config, cluster), build)


@task(help=JOB_HELP)
def cancel(c: Context, build: str = "", cluster: str = "") -> None:
    """Cancel a job, and only that one."""
    with told():
        from scripts import run, settings

        run.cancel_job(settings.read(c.config, cluster), build)


@task
def up(c: Context) -> None:
    """Start the local Iris, registry and git server, and let them run."""
    with told():
        from scripts import settings
        from scripts.local import machine

        machine.up(settings.read(c.config))


@task
def status(c: Context) -> None:
    """Say which local servers run, where, and where their logs are."""
    with told():
        from scripts import settings
        from scripts.local import machine

        machine.status(settings.read(c.config))


@task
def down(c: Context) -> None:
    """Stop the local servers; what was pushed is kept."""
    with told():
        from scripts import settings
        from scripts.local import machine

        machine.down(settings.read(c.config))


ns = Collection(watch, logs, cancel)
ns.add_collection(Collection("local", up, status, down))
ns.add_collection(Collection("build"))
ns.add_collection(Collection("record"))
for _image in IMAGES.values():
    ns.collections["build"].add_task(task(build_task(_image), help=BUILD_HELP), name=_image.task)
    ns.collections["record"].add_task(task(record_task(_image)), name=_image.task)
