"""Smoke jobs: the asserts of pushed images, run by the real Iris in the images themselves."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts import catalogue, records, smoke
from scripts.catalogue import Image
from scripts.errors import Absent, AssertsFailed, JobFailed
from scripts.iris.cli import JobState, JobStatus
from scripts.records import Record
from scripts.registry import artifact, reference
from scripts.registry.reference import Reference
from scripts.settings import LOCAL, Settings
from tests.conftest import CACHE
from tests.local.place import ROOT, Place, context
from tests.local.test_build import FORMS, TOKEN

STEPS = "COPY runner.py asserts.py /opt/\nCOPY pins /opt/provenance/pins\nENV GREETING='hello there'\n"
ASSERTS = """\
import os, sys
import runner

def machine(pins):
    return runner.expect("files of the machine", set(), set(os.listdir("/")) & {"work", "kaniko"})

def greeting(pins):
    return runner.expect("GREETING", sys.argv[1], os.environ["GREETING"])

sys.exit(runner.run({"machine": machine, "greeting": greeting}))
"""
PYTHON = ("/usr/bin/python3", "/opt/asserts.py")


@pytest.fixture(scope="module")
def tpu() -> Image:
    return catalogue.load(ROOT)["tpu"]


@pytest.fixture(scope="module")
def settings(place: Place) -> Settings:
    return Settings(LOCAL, CACHE, place.state, "iris", "", "", "", {})


@pytest.fixture(scope="module")
def record(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A build, with a token of the user's, of an image that holds asserts of its own."""
    runner = (ROOT / "docker/asserts/runner.py").read_text()
    files = {"runner.py": runner, "asserts.py": ASSERTS, "pins": "A=b\n"}
    folder = context(tmp_path_factory.mktemp("smoke") / "context", STEPS, files)
    words = ("tpu", f"--context={folder}")
    built, _ = place.build(*words, REGISTRY_USER="someone", REGISTRY_TOKEN=TOKEN)
    return records.load(place.state / "records", "tpu", built["id"])


def test_asserts_run_in_the_image_and_are_recorded(settings: Settings, tpu: Image, record: Record) -> None:
    pushed = reference.parse(record.data["result"]["reference"])

    def run(asserts: tuple[str, ...], of: Record | None = None) -> dict[str, Any]:
        return smoke.run(settings, replace(tpu, asserts=asserts), pushed, of)

    with ThreadPoolExecutor() as pool:
        jobs = (
            pool.submit(run, (*PYTHON, "hello there"), record),
            pool.submit(run, (*PYTHON, "good bye")),
            pool.submit(run, ("/opt/no/python", "/opt/asserts.py")),
        )
        passed, failed, missing = (job.result() for job in jobs)
    assert (passed["verdict"], passed["error"], passed["exit_code"]) == ("pass", "", 0)
    assert passed["asserts"] == [
        "assert ok: machine: files of the machine set()",
        "assert ok: greeting: GREETING hello there",
    ]
    assert passed["digest"] == record.data["result"]["digest"]
    assert json.loads(record.path.read_text())["smoked"] == [passed]
    assert (failed["verdict"], failed["exit_code"]) == ("fail", 16)
    assert "1 of 2 asserts failed" in failed["error"]
    assert "assert failed: greeting: expected GREETING to be 'good bye', saw 'hello there'" in failed["error"]
    assert "assert ok" not in failed["error"]
    assert (missing["verdict"], missing["asserts"], missing["exit_code"]) == ("fail", [], 16)
    assert "could not be run to their end" in missing["error"]
    assert "(exit code 127)" in missing["error"]
    assert "'/opt/no/python': No such file" in missing["error"]
    assert not list((settings.state / "roots").glob("smoke-*")), "the exported image is gone"


def test_the_attached_record_holds_no_form_of_the_token(record: Record) -> None:
    pushed = reference.parse(record.data["result"]["reference"])
    artifact.attach(pushed, records.document(record))
    found = artifact.attached(pushed)
    travelled = {name: value for name, value in record.data.items() if name != "argv"}
    assert records.of_document(found) == travelled
    assert not [form for form in FORMS if form.encode() in found]


def test_an_image_that_is_not_there_costs_no_job(settings: Settings, tpu: Image, record: Record) -> None:
    gone = reference.parse(record.data["result"]["reference"]).at("sha256:" + "0" * 64)
    with pytest.raises(Absent):
        smoke.run(settings, tpu, gone, None)


def planned(image: Image, architecture: str, size: int) -> smoke.Smoke:
    pushed = Reference("ghcr.io", "team/image", digest="sha256:" + "a" * 64)
    built = image.resources_for(architecture, local=False)
    return smoke.Smoke(image, pushed, "cw-us-east-02a", smoke.resources(built, size))


def test_a_cluster_gets_the_digest_the_asserts_and_nothing_else() -> None:
    image = catalogue.load(ROOT)["gpu-rl"]
    small = planned(image, "amd64", 1_000_000_000).job(())
    assert (small.task_image, small.command) == ("ghcr.io/team/image@sha256:" + "a" * 64, image.asserts)
    assert (small.env, small.secrets, small.disk, small.gpu) == ({}, {}, "20GB", None)
    large = planned(image, "arm64", 16_600_000_000).job(())
    assert (large.disk, large.gpu) == ("67GB", "GB200x1")


BACK_OFF = "ImagePullBackOff: Back-off pulling image"
STATUS = [
    (
        JobStatus(JobState.FAILED, "Exit code: 1", 1),
        ["assert failed: x"],
        "",
        AssertsFailed,
        "1 of 1 asserts",
    ),
    (JobStatus(JobState.FAILED, "Exit code: 137", 137), [], "", AssertsFailed, "exit code 137"),
    (JobStatus(JobState.KILLED), [], BACK_OFF, JobFailed, f"could not pull and start .*: {BACK_OFF}"),
    (JobStatus(JobState.UNSCHEDULABLE, "no group has a GPU"), [], "", JobFailed, "no group has a GPU"),
    (JobStatus(JobState.WORKER_FAILED), ["assert failed: x"], "", JobFailed, "worker_failed"),
]


@pytest.mark.parametrize(("status", "lines", "reason", "kind", "words"), STATUS)
def test_a_node_that_does_not_start_the_image_is_told_from_failed_asserts(
    tpu: Image, status: JobStatus, lines: list[str], reason: str, kind: type[Exception], words: str
) -> None:
    found = smoke.failure(planned(tpu, "amd64", 1), status, lines, reason)
    assert type(found) is kind
    with pytest.raises(kind, match=words):
        raise found
    succeeded = JobStatus(JobState.SUCCEEDED)
    assert smoke.failure(planned(tpu, "amd64", 1), succeeded, ["assert failed: in a log"], "") is None


IRIS = """\
#!/bin/sh
echo "$*" >> {folder}/calls
case "$*" in
  *--help*) echo "  --task-image --no-sync --secret" ;;
  *"job run"*) ls -A > {folder}/bundle; echo /root/smoke ;;
  *"job logs"*) {logs} ;;
  *get-job-status*) echo '{{"job": {{"state": "JOB_STATE_RUNNING"}}}}' ;;
  *list-tasks*) echo '{{"tasks": [{{"state": "TASK_STATE_BUILDING", "status_message": "{reason}"}}]}}' ;;
  *get-job-state*) echo '{{"states": {{"/root/smoke": "JOB_STATE_KILLED"}}}}' ;;
  *terminate-job*) ;;
esac
"""


def cluster(folder: Path, settings: Settings, logs: str) -> Settings:
    """Settings of a cluster whose iris program is a script, to which a job runs while it waits for its image.

    So does Iris on Kubernetes.
    """
    program = folder / "iris"
    program.write_text(IRIS.format(folder=folder, logs=logs, reason=BACK_OFF))
    program.chmod(0o755)
    return replace(settings, cluster="cw-us-east-02a", iris_program=str(program), state=folder)


def test_an_image_that_no_node_can_pull_is_not_waited_for(
    settings: Settings, tpu: Image, record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOOK_SECONDS", "PATIENCE_SECONDS"):
        monkeypatch.setattr(smoke, name, 0)
    pushed = reference.parse(record.data["result"]["reference"])
    found = smoke.run(cluster(tmp_path, settings, "exit"), tpu, pushed, None)
    assert (found["verdict"], found["exit_code"], found["asserts"]) == ("fail", 12, [])
    assert f"cw-us-east-02a could not pull and start {pushed}" in found["error"]
    assert BACK_OFF in found["error"]
    calls = (tmp_path / "calls").read_text()
    assert f"--task-image {pushed} -- {' '.join(tpu.asserts)}\n" in calls
    assert "terminate-job --job-id /root/smoke" in calls
    assert (tmp_path / "bundle").read_text() == ""


def test_an_interrupt_cancels_the_job(settings: Settings, tpu: Image, record: Record, tmp_path: Path) -> None:
    pushed = reference.parse(record.data["result"]["reference"])
    with pytest.raises(KeyboardInterrupt):
        smoke.run(cluster(tmp_path, settings, "kill -INT $PPID"), tpu, pushed, None)
    assert "terminate-job --job-id /root/smoke" in (tmp_path / "calls").read_text()
