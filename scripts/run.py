"""What the tasks do: open a site, build or look after a job there, and show it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scripts import build, catalogue, command, markdown, records, sites, smoke, target, verify, view
from scripts.build import Plan, Request, Site
from scripts.catalogue import Image
from scripts.errors import InputError, IrisError, IrisImagesError, RegistryError, StillRunning, Unfit
from scripts.iris.cli import JobState
from scripts.progress import say
from scripts.records import Record
from scripts.registry import artifact, checks, crane, reference
from scripts.registry import image as registry_image
from scripts.registry.access import Accesses
from scripts.registry.checks import Verdict
from scripts.release import check
from scripts.settings import LOCAL, Settings
from scripts.verify import Question

INTERRUPTED = 130
ALL_LINES = 1_000_000


@dataclass(frozen=True)
class Options:
    """How a build is run and shown."""

    dry_run: bool = False
    json: bool = False
    wait: bool = True


@dataclass(frozen=True)
class Form:
    """How a record is shown, and where it comes from.

    Attributes:
        ref: with from_registry, the image whose record is read; None: the last pushed build on record.
    """

    json: bool = False
    attach: bool = False
    from_registry: bool = False
    ref: str | None = None


def build_image(request: Request, settings: Settings, options: Options) -> None:
    """Build one image: plan, record, submit and, unless told otherwise, follow to the end.

    Raises:
        IrisImagesError: each of its kinds; with `json` the record is printed all the same.
        SystemExit: 130, when a person stopped watching; the job goes on.
    """
    say(_where(settings))
    if options.dry_run:
        _show(
            build.plan(request, sites.outline(settings, request.image, request.architecture)),
            dry_run=True,
            as_json=options.json,
        )
        return
    with sites.opened(settings, request.image, request.architecture) as site:
        plan = build.plan(request, site)
        record = _begun(settings, plan)
        if not options.json:
            _show(plan, dry_run=False, as_json=False)
        with _printed(record, options):
            _submit(settings, plan, record)
            if options.wait:
                _follow(settings, site, record)
            else:
                _detach(settings, record)
        if options.wait and not options.json:
            print(record.data["result"]["reference"])


def verify_image(settings: Settings, question: Question, *, as_json: bool) -> None:
    """Verify what was named and print the verdict; with `as_json` as an object.

    Raises:
        Unfit: a check failed.
        IrisImagesError: the image cannot be read.
    """
    results = verify.verify(settings, question)
    if as_json:
        verdict = checks.worst([check for result in results for check in result.checks])
        print(json.dumps({"verdict": verdict, "images": [result.data() for result in results]}, indent=2))
    else:
        view.verdict(results)
    failed = {
        result.named.reference: [row.check for row in result.checks if row.verdict is Verdict.FAIL]
        for result in results
    }
    if unfit := [f"{name} is not fit: {', '.join(rows)}." for name, rows in failed.items() if rows]:
        raise Unfit(" ".join(unfit), "the rows of these checks say what to do.")


def check_pins(settings: Settings, images: Sequence[Image], paths: Sequence[str]) -> None:
    """Check every image reference in files and print a row for each.

    Raises:
        Unfit: a constant holds what cannot be relied on.
        InputError: a path that is neither a file nor a git checkout.
    """
    rows = check.check(settings, images, [Path(path) for path in paths])
    view.rows(rows)
    if failed := [row.check for row in rows if row.verdict is Verdict.FAIL]:
        what = f"{len(failed)} of {len(rows)} references cannot be relied on, the first in {failed[0]}."
        raise Unfit(what, "the rows say what to do.")


def smoke_image(settings: Settings, image: Image, ref: str | None) -> None:
    """Run the asserts of an image in a job of its own, and print their lines.

    Raises:
        Recorded: they failed, or no node could pull and start the image.
        IrisImagesError: there is no result: no image, no Iris.
    """
    say(_where(settings))
    found = target.pinned(settings, image, ref)
    with sites.asking(settings, image) as accesses:
        asked = accesses(found.reference.host)
        wanted = sites.architecture(settings)
        named, login = asked.ask(lambda env: registry_image.look(found.reference, wanted, env=env))
        record = found.record or target.record(settings, image, named)
        result = smoke.run(settings, image, named.reference, record, env=asked.env(login=login))
    print("\n".join(result["asserts"]))
    if result["verdict"] == "fail":
        raise Recorded(result)
    print(f"pass: {result['reference']} at {result['cluster']}")


def show_record(settings: Settings, image: Image, build: str, form: Form) -> None:
    """Print a record: of this machine, or the one that lies beside the image in the registry.

    Raises:
        InputError: there is none.
        Absent, CredentialError, RegistryError: the registry has none, or does not take one.
    """
    if form.from_registry and (form.attach or build):
        raise InputError("--from-registry reads a record; --build and --attach are for one of this machine.")
    if form.from_registry:
        with sites.asking(settings, image) as accesses:
            data = _attached(settings, image, form.ref, accesses)
    else:
        record = (
            _of_ref(settings, image, form.ref)
            if form.ref
            else records.load(settings.records, image.name, build)
        )
        data = record.data
    if form.attach:
        _attach(settings, record)
    print(json.dumps(data, indent=2) if form.json else markdown.render(data), end="\n" if form.json else "")


def _of_ref(settings: Settings, image: Image, ref: str) -> Record:
    digest = target.named(settings, image, ref).reference.digest
    found = records.of_digest(settings.records, image.name, digest) if digest else None
    if not found:
        step = "name it by digest, or add --from-registry."
        raise InputError(f"No record of this machine is of {ref}.", step)
    return found


def _attached(settings: Settings, image: Image, ref: str | None, accesses: Accesses) -> dict[str, Any]:
    found = target.pinned(settings, image, ref).reference
    asked = accesses(found.host)
    digest = found.digest or asked.ask(lambda env: crane.digest(found, env=env))[0]
    data = records.of_document(asked.ask(lambda env: artifact.attached(found.at(digest), env=env))[0])
    about = data.get("result") or {}
    if (data["image"], about.get("digest")) != (image.name, digest):
        raise RegistryError(
            f"The record beside {found.at(digest)} is about {data['image']} {about.get('digest', '')}.",
            "attach the right one again.",
        )
    return data


def _attach(settings: Settings, record: Record) -> None:
    if "result" not in record.data:
        raise InputError(f"{record.id} pushed nothing that a record could lie beside.", "build again.")
    subject = reference.parse(record.data["result"]["reference"]).at(record.data["result"]["digest"])
    with sites.readable(settings), sites.writing(settings, subject.host) as env:
        say(f"attached as {artifact.attach(subject, records.document(record), env=env)}")


def watch_job(settings: Settings, name: str) -> None:
    """Follow the job of a record to its end and its report; of one that ended, show how.

    Raises:
        IrisImagesError: how it ended, or that Iris knows no job of it.
    """
    record = records.load(settings.records, build=name)
    if record.data["state"] not in ("pushed", "failed") or "ended" not in record.data:
        with _job_of(settings, record) as site:
            if site.iris.state(record.data["job"]) is JobState.ABSENT:
                raise IrisError(f"The controller does not know {record.data['job']}.", "build again.")
            _follow(settings, replace(site, credential=sites.credential(settings, record)), record)
    elif record.data["state"] == "failed":
        raise Recorded(record.data)
    else:
        view.report(record.data, _next(record))
    print(record.data["result"]["reference"])


def print_log(settings: Settings, name: str) -> None:
    """Print a job's log: the kept one of a build that ended, else what Iris has."""
    record = records.load(settings.records, build=name)
    kept = record.path.with_suffix(".log")
    if record.data.get("ended") and kept.exists():
        print(kept.read_text(), end="")
        return
    with _job_of(settings, record) as site:
        print("\n".join(line.text for line in site.iris.logs(record.data["job"], max_lines=ALL_LINES)))


def cancel_job(settings: Settings, name: str) -> None:
    """Cancel the job of a record and say what state it is in then."""
    record = records.load(settings.records, build=name)
    with _job_of(settings, record) as site:
        state = site.iris.cancel(record.data["job"])
    say(f"{record.data['job']}: {state}")


class Recorded(IrisImagesError):
    """A failure that a record holds, told again."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data["error"])
        self.exit_code = data["exit_code"]


def _where(settings: Settings) -> str:
    if settings.cluster == LOCAL:
        return "cluster: local, embedded; set cluster=… for a real one"
    return f"cluster: {settings.cluster}"


def _begun(settings: Settings, plan: Plan) -> Record:
    image = plan.request.image
    name = records.name(image.task, plan.source.commit)
    return records.create(settings.records, image.name, name, **plan.facts())


def _show(plan: Plan, *, dry_run: bool, as_json: bool) -> None:
    """Print a plan; with `as_json` as an object on standard output."""
    argv = command.shown(build.outlined(plan))
    if as_json:
        print(json.dumps({"state": "dry run", **plan.facts(), "argv": argv}, indent=2))
        return
    view.plan(plan.facts(), argv)
    if dry_run:
        say("dry run: nothing was changed.")


@contextmanager
def _printed(record: Record, options: Options) -> Iterator[None]:
    """With `json`, print the record at the end, however that comes."""
    try:
        yield
    except IrisImagesError as failure:
        goes_on = "job" in record.data and isinstance(failure, StillRunning | IrisError)
        state = "submitted" if goes_on else "failed"
        record.update(state=state, error=str(failure), exit_code=failure.exit_code)
        raise
    finally:
        if options.json:
            print(json.dumps(record.data, indent=2))


def _submit(settings: Settings, plan: Plan, record: Record) -> None:
    try:
        build.submit(plan, record)
    except KeyboardInterrupt:
        say("Interrupted while the job was submitted: Iris may have it.")
        _detach(settings, record)
        raise SystemExit(INTERRUPTED) from None
    say(f"submitted {record.data['job']}")


def _follow(settings: Settings, site: Site, record: Record) -> None:
    try:
        build.follow(site.iris, record, site.credential)
    except KeyboardInterrupt:
        _detach(settings, record)
        raise SystemExit(INTERRUPTED) from None
    except (StillRunning, IrisError):
        _detach(settings, record)
        raise
    view.report(record.data, _next(record))


def _detach(settings: Settings, record: Record) -> None:
    sites.leave_running(settings)
    words = f"--build={record.id}" + ("" if settings.cluster == LOCAL else f" --cluster={settings.cluster}")
    say(f"The job goes on.\n  follow it: inv watch {words}\n  stop it:   inv cancel {words}")


def _next(record: Record) -> str:
    return f"inv record.{record.data['task']} --build={record.id}"


@contextmanager
def _job_of(settings: Settings, record: Record) -> Iterator[Site]:
    """The site that a record's job runs at; the record knows the job's id then.

    A submission that was interrupted, or answered too late, may have been heard: Iris is asked.

    Raises:
        InputError: it runs elsewhere, or Iris knows no job of it.
    """
    if record.data["cluster"] != settings.cluster:
        raise InputError(
            f"{record.id} runs at {record.data['cluster']}, not at {settings.cluster}.",
            f"add --cluster={record.data['cluster']}.",
        )
    image = catalogue.load(build.SCRIPTS.parent)[record.data["image"]]
    with sites.attached(settings, image) as site:
        job = record.data.get("job") or site.iris.find(record.id)
        if not job:
            raise InputError(f"Iris knows no job of {record.id}.", "build again.")
        if "job" not in record.data:
            record.update(state="submitted", job=job)
        yield site
