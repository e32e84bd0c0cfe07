"""The tasks of iris-images. `inv --list` shows them; `inv --help build.gpurl` explains one.

A task parses, calls and prints; what it calls lies in scripts/. The modules behind a task are
imported when it runs, so that `inv --list` stays quick.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from scripts import catalogue
from scripts.errors import InputError, IrisImagesError

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
VERIFY_HELP = {
    "ref": "a tag, a digest or a whole reference, may be repeated; by default the last pushed build",
    "cluster": "'local': tags and digests are those of the registry of this machine",
    "context": BUILD_HELP["context"],
    "architecture": "what it must be for; by default what its record or its tag says",
    "commit": "what it must be built from; by default what its record or its tag says",
    "lock": "a lock file, in place of the one at the pinned commit",
    "inside": "also read from the layers what docker/images.toml asks for",
    "file": "also look at this path, as the running image sees it",
    "grep": "a regular expression that a line of --file must match",
    "json": "print the verdict as an object",
}
SMOKE_HELP = {
    "ref": "a tag, a digest or a whole reference; by default the last pushed build",
    "cluster": BUILD_HELP["cluster"],
}
RECORD_HELP = {
    "build": "a build of the records; the image's newest by default",
    "attach": "also store it beside the image in the registry",
    "from-registry": "the one that was stored there, from whichever machine",
    "ref": "with --from-registry: whose record; by default that of the last pushed build",
    "cluster": "'local': the registry is the one of this machine",
    "json": "print it as it is kept",
}
PROMOTE_HELP = {
    "digest": "sha256:… that passed; without a value that of HEAD's pinned tag, or of the last pushed build",
    "cluster": VERIFY_HELP["cluster"],
    "context": BUILD_HELP["context"],
    "smoke": "--no-smoke promotes without a smoke job, for a reason (--why)",
    "why": "the reason, for the record",
    "dry-run": "print the plan; change nothing",
    "yes": "do not ask on the terminal",
}
PIN_HELP = {
    "launcher": "the checkout that holds the launcher; docker/images.toml names file and constant",
    "digest": PROMOTE_HELP["digest"],
    "cluster": VERIFY_HELP["cluster"],
    "context": BUILD_HELP["context"],
    "variant": BUILD_HELP["variant"],
    "architecture": "amd64 (default) or arm64",
    "reason": "one line, which stands beside the value",
    "revert": "write back what the last pin replaced",
    "commit": "also commit it in the launcher's repository; nothing is pushed",
    "dry-run": "show the difference; change nothing",
}
ROLLBACK_HELP = {
    "to": "sha256:… that passed; by default the last one that was promoted and not taken back",
    "not-before": "a commit: warn when the target does not contain it",
    **{name: PROMOTE_HELP[name] for name in ("cluster", "context", "dry-run", "yes")},
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
    except OSError as failure:
        raise Exit(f"{failure.strerror or failure}: {failure.filename or 'no file'}.", code=1) from failure
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


def asked_file(file: str, grep: str) -> list[catalogue.Inside]:
    """What --file and --grep ask of an image."""
    if grep and not file:
        raise InputError("--grep asks for a line of a file.", "name the file with --file.")
    try:
        re.compile(grep)
    except re.error as wrong:
        raise InputError(f"{grep!r} is not a regular expression: {wrong}.", "correct --grep.") from wrong
    return [catalogue.Inside(file, grep)] if file else []


def verify_task(image: catalogue.Image) -> Callable[..., None]:
    """The task that says whether a pushed image is fit to run."""

    def verify(
        c: Context,
        ref: list[str],
        cluster: str = "",
        context: str = str(ROOT),
        architecture: str = "",
        commit: str = "",
        lock: str = "",
        inside: bool = False,
        file: str = "",
        grep: str = "",
        json: bool = False,
    ) -> None:
        with told():
            from scripts import run, settings
            from scripts.verify import Question

            chosen = catalogue.of_context(Path(context), image)
            read = asked_file(file, grep)
            read += chosen.inside if inside else ()
            question = Question(chosen, Path(context), tuple(ref), architecture, commit, lock, tuple(read))
            run.verify_image(settings.read(c.config, cluster), question, as_json=json)

    verify.__doc__ = f"Say whether a pushed image of {image.name} is fit to run."
    return verify


def promote_task(image: catalogue.Image) -> Callable[..., None]:
    """The task that moves the floating tag of one image to a digest."""

    def promote(
        c: Context,
        digest: str | bool = "",
        cluster: str = "",
        context: str = str(ROOT),
        smoke: bool = True,
        why: str = "",
        dry_run: bool = False,
        yes: bool = False,
    ) -> None:
        with told():
            from scripts import settings
            from scripts.release import promote

            options = promote.Options(yes=yes, dry_run=dry_run, smoke=smoke, why=why)
            chosen = catalogue.of_context(Path(context), image)
            promote.promote(settings.read(c.config, cluster), chosen, Path(context), digest, options)

    promote.__doc__ = f"Move the floating tag of {image.name} to a digest that passed."
    return promote


def rollback_task(image: catalogue.Image) -> Callable[..., None]:
    """The task that moves the floating tag of one image back."""

    def rollback(
        c: Context,
        to: str = "",
        cluster: str = "",
        context: str = str(ROOT),
        not_before: str = "",
        dry_run: bool = False,
        yes: bool = False,
    ) -> None:
        with told():
            from scripts import settings
            from scripts.release import promote

            options = promote.Options(yes=yes, dry_run=dry_run)
            found, chosen = settings.read(c.config, cluster), catalogue.of_context(Path(context), image)
            promote.rollback(found, chosen, Path(context), to, not_before, options)

    rollback.__doc__ = f"Move the floating tag of {image.name} back to the last digest that was promoted."
    return rollback


def promotions_task(image: catalogue.Image) -> Callable[..., None]:
    """The task that shows how the floating tag of one image was moved."""

    def promotions(c: Context, cluster: str = "") -> None:
        with told():
            from scripts import settings
            from scripts.release import promote

            promote.promotions(settings.read(c.config, cluster), image)

    promotions.__doc__ = f"Show how the floating tag of {image.name} was moved, and what is true now."
    return promotions


def pin_task(image: catalogue.Image) -> Callable[..., None]:
    """The task that writes a digest of one image into its launcher."""

    def pin(
        c: Context,
        launcher: str,
        digest: str | bool = "",
        cluster: str = "",
        context: str = str(ROOT),
        variant: str = "",
        architecture: str = "amd64",
        reason: str = "",
        revert: bool = False,
        commit: bool = False,
        dry_run: bool = False,
    ) -> None:
        with told():
            from scripts import settings
            from scripts.release import pin

            found = settings.read(c.config, cluster)
            chosen = catalogue.of_context(Path(context), image)
            holder = pin.Holder(chosen, Path(launcher), variant, architecture)
            options = pin.Options(reason=reason, dry_run=dry_run, commit=commit)
            if revert:
                pin.revert(found, holder, options)
            else:
                pin.pin(found, holder, Path(context), digest, options)

    pin.__doc__ = f"Write a digest of {image.name} that passed into the launcher that uses it."
    return pin


@task(
    iterable=["path"],
    help={
        "path": "a file, or a git checkout; may be repeated; by default this one",
        "cluster": VERIFY_HELP["cluster"],
    },
)
def check(c: Context, path: list[str], cluster: str = "") -> None:
    """Say of every image in files whether it floats, can be pulled, and is the one that constants hold."""
    with told():
        from scripts import run, settings

        run.check_pins(settings.read(c.config, cluster), list(IMAGES.values()), path or ["."])


SET_HELP = {
    "set": "of docker/wheel-sets; by default small without a cluster, else gpu-rl",
    "architecture": "amd64 or arm64; by default that of this machine",
    "cluster": VERIFY_HELP["cluster"],
}


@task(
    help={
        **SET_HELP,
        "to": "a repository, or hf://, s3://, file:// for fsspec",
        "dry-run": PIN_HELP["dry-run"],
    }
)
def publish(
    c: Context, set: str = "", architecture: str = "", cluster: str = "", to: str = "", dry_run: bool = False
) -> None:
    """Store the wheelhouse of a set by the sha256 of its MANIFEST, and read it back."""
    with told():
        from scripts import settings
        from scripts.wheels import compile, publish

        found = settings.read(c.config, cluster)
        chosen = compile.chosen(compile.Request(set, architecture), found)
        publish.publish(found, chosen, to, dry_run=dry_run)


@task(help=SET_HELP)
def find(c: Context, set: str = "", architecture: str = "", cluster: str = "") -> None:
    """Print the published set that fits the Dockerfile's pins, or say what differs."""
    with told():
        from scripts import settings
        from scripts.wheels import compile, find

        found = settings.read(c.config, cluster)
        find.find(found, compile.chosen(compile.Request(set, architecture), found))


@task(help={"what": "a folder, a reference, or an address with ://", "cluster": VERIFY_HELP["cluster"]})
def verify(c: Context, what: str, cluster: str = "") -> None:
    """Read every byte of a wheel set and say whether it is whole."""
    with told():
        from scripts import settings
        from scripts.wheels import publish

        publish.verify(settings.read(c.config, cluster), what)


@task(name="list", help={"cluster": VERIFY_HELP["cluster"]})
def list_sets(c: Context, cluster: str = "") -> None:
    """Print the published wheel sets."""
    with told():
        from scripts import settings
        from scripts.wheels import publish

        publish.show(settings.read(c.config, cluster))


@task(
    help={"context": "the checkout whose branches and tags hold the pins", "yes": "remove what the plan says"}
)
def prune(c: Context, context: str = str(ROOT), cluster: str = "", yes: bool = False) -> None:
    """Propose published wheel sets that no branch, tag or setting needs."""
    with told():
        from scripts import settings
        from scripts.wheels import prune

        prune.prune(settings.read(c.config, cluster), Path(context), yes=yes)


def smoke_task(image: catalogue.Image) -> Callable[..., None]:
    """The task that runs the asserts of a pushed image on a cluster."""

    def smoke(c: Context, ref: str = "", cluster: str = "") -> None:
        with told():
            from scripts import run, settings

            run.smoke_image(settings.read(c.config, cluster), image, ref or None)

    smoke.__doc__ = f"Run the asserts of a pushed image of {image.name} in a job whose task image it is."
    return smoke


def record_task(image: catalogue.Image) -> Callable[..., None]:
    """The task that shows the record of one image's newest build."""

    def record(
        c: Context,
        build: str = "",
        ref: str = "",
        cluster: str = "",
        attach: bool = False,
        from_registry: bool = False,
        json: bool = False,
    ) -> None:
        with told():
            from scripts import run, settings

            form = run.Form(json=json, attach=attach, from_registry=from_registry, ref=ref or None)
            run.show_record(settings.read(c.config, cluster), image, build, form)

    record.__doc__ = f"Print the record of a build of {image.name} as Markdown, by default of the newest."
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


def collected(image: catalogue.Image) -> Iterator[tuple[str, Callable[..., None]]]:
    """The tasks of one image, each with the collection that it belongs to."""
    yield "build", task(build_task(image), help=BUILD_HELP)
    yield "verify", task(verify_task(image), help=VERIFY_HELP, iterable=["ref"])
    yield "smoke", task(smoke_task(image), help=SMOKE_HELP)
    yield "promote", task(promote_task(image), help=PROMOTE_HELP, optional=["digest"])
    yield "rollback", task(rollback_task(image), help=ROLLBACK_HELP)
    yield "promotions", task(promotions_task(image), help={"cluster": VERIFY_HELP["cluster"]})
    yield "pin", task(pin_task(image), help=PIN_HELP, optional=["digest"], positional=[])
    yield "record", task(record_task(image), help=RECORD_HELP)


ns = Collection(watch, logs, cancel)
ns.add_collection(Collection("local", up, status, down))
ns.add_collection(Collection("pins", check))
ns.add_collection(Collection("wheels", publish, find, verify, list_sets, prune))
for _image in IMAGES.values():
    for _name, _task in collected(_image):
        if _name not in ns.collections:
            ns.add_collection(Collection(_name))
        ns.collections[_name].add_task(_task, name=_image.task)
