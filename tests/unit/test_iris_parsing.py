"""What iris prints, old and new, and what its failures mean. The programs here are shell scripts: an
iris that fails in a given way cannot be had otherwise.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from scripts.errors import (
    ConfigurationError,
    CredentialError,
    InputError,
    IrisError,
    IrisImagesError,
    SourceError,
    StillRunning,
)
from scripts.iris.cli import Iris, Job, JobState, LogLine, explain, parse_logs, parse_status
from scripts.iris.watch_job_state import Update, watch

HELP_OF_ALL = "Usage: iris job run [OPTIONS] [CMD]...\n  --cpu FLOAT\n  --memory TEXT\n  --no-wait\n"
HELP_OF_JULY = HELP_OF_ALL + "  --no-sync      Skip the set-up.\n"
HELP_OF_OCTOBER = HELP_OF_JULY + "  --secret <TEXT TEXT>...\n  --secret-behavior [inherit|isolate]\n"


def program(folder: Path, body: str, help_text: str = HELP_OF_OCTOBER) -> Iris:
    (folder / "help").write_text(help_text)
    script = folder / "iris"
    script.write_text(f'#!/bin/sh\ncase "$*" in *--help*) exec cat "{folder}/help" ;; esac\n{body}\n')
    script.chmod(0o755)
    return Iris((str(script),), ("--controller-url", "http://127.0.0.1:1"))


def job(**changes: object) -> Job:
    plain = {"name": "n", "command": ("true",), "cpu": 1, "memory": "1GB", "disk": "1GB"}
    return Job(**{**plain, "timeout_seconds": 60, **changes})  # type: ignore[arg-type]


def test_log_lines_of_both_forms_and_lines_without_a_prefix() -> None:
    said = [
        "[20:32:02] task=/root/a/0 | old | form",
        "[20:28:12] task=/root/a/0 attempt=0 | Task failed:",
        "  Traceback, second line",
        "[20:28:13] task=/root/a/0 attempt=1 | ",
    ]
    assert parse_logs(said) == [
        LogLine("20:32:02", "/root/a/0", "old | form"),
        LogLine("20:28:12", "/root/a/0", "Task failed:"),
        LogLine("20:28:12", "/root/a/0", "  Traceback, second line"),
        LogLine("20:28:13", "/root/a/0", ""),
    ]


@pytest.mark.parametrize(
    ("state", "task_code", "expected"),
    [("FAILED", 7, 7), ("FAILED", -9, -9), ("FAILED", 0, None), ("KILLED", 9, None), ("SUCCEEDED", 0, None)],
)
def test_exit_code_is_the_tasks_and_only_of_a_failure(
    state: str, task_code: int, expected: int | None
) -> None:
    found = parse_status(
        {"state": f"JOB_STATE_{state}", "exit_code": 0}, {"tasks": [{"exit_code": task_code}]}
    )
    assert found.exit_code == expected


def test_status_of_a_running_job_has_no_end() -> None:
    running = {
        "state": "JOB_STATE_RUNNING",
        "exit_code": 0,
        "started_at": {"epoch_ms": "1796070492818"},
        "preemption_count": 2,
    }
    found = parse_status(running, {})
    assert found.started_at == datetime(2026, 11, 30, 20, 28, 12, 818000, UTC)
    assert (found.finished_at, found.exit_code, found.preemptions) == (None, None, 2)


def test_a_state_that_nobody_knows_is_not_taken_for_another() -> None:
    with pytest.raises(IrisError, match="JOB_STATE_PAUSED"):
        parse_status({"state": "JOB_STATE_PAUSED"}, {})


TRACEBACK = "I20261130 20:00:00 1 iris.cli.job Command: bash\nTraceback (most recent call last):\n  File x\n"


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (TRACEBACK + "E: marin-iris client is too old (build 2026-06-18)", IrisError, "upgrade marin-iris"),
        (TRACEBACK + "E: marin-iris client is too old: your build is a", IrisError, "upgrade marin-iris"),
        (TRACEBACK + "iris.client.client.JobAlreadyExists: Job /root/b already exists and is still running",
         IrisError, "inv watch"),
        (TRACEBACK + "E: Job /r/a is unschedulable: no matching scaling group", IrisError, "images.toml"),
        (TRACEBACK + "ValueError: Bundle size 26.0MB exceeds maximum 25MB.", SourceError, "25 MiB"),
        ("Usage: iris\nTry 'iris --help'\n\nError: Unknown cluster 'nope'. Run", ConfigurationError, "list"),
        ("Error: Could not connect to controller: kubectl port-forward to x:1 failed after 90.0s",
         IrisError, "kubectl"),
        (TRACEBACK + "ConfigException: Invalid kube-config file. No configuration found.",
         IrisError, "kubeconfig"),
        (TRACEBACK + "SecretResolutionError: no secret source produced a value", CredentialError, "token"),
        (TRACEBACK + "ConnectError: Request failed: error sending request for url (x): tcp connect error",
         IrisError, "did not reach"),
        (TRACEBACK + "SomethingNew: whatever", IrisError, "SomethingNew: whatever"),
    ],
)  # fmt: skip
def test_each_failure_has_its_class_and_next_step(said: str, kind: type[IrisImagesError], words: str) -> None:
    found = explain(said, 1)
    assert type(found) is kind
    assert words in str(found)
    assert "Command: bash" not in str(found)
    assert "File x" not in str(found)


def test_a_secret_is_refused_before_anything_is_sent_where_it_would_be_seen(tmp_path: Path) -> None:
    old = program(tmp_path, f"touch {tmp_path}/sent; echo /root/n", HELP_OF_JULY)
    with pytest.raises(CredentialError, match="upgrade marin-iris"):
        old.submit(job(secrets={"TOKEN": "abc"}), tmp_path)
    assert not (tmp_path / "sent").exists()


@pytest.mark.parametrize("name", ["", "Up", "a b", "a/b", "-a", "a" * 64])
def test_names_that_a_pod_cannot_have_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        program(tmp_path, "exit 1").plan(job(name=name))


def test_words_follow_the_vintage(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    june = program(tmp_path / "old", "", HELP_OF_ALL).plan(job(env={"A": "b c=d"}))
    october = program(tmp_path / "new", "").plan(job(secrets={"TOKEN": "abc"}))
    assert june[-5:] == ["-e", "A", "b c=d", "--", "true"]
    assert not {"--no-sync", "--secret-behavior"} & set(june)
    assert {"--no-sync", "--secret-behavior", "env:IRIS_IMAGES_SECRET_TOKEN"} <= set(october)
    assert "abc" not in " ".join(october)


def test_iris_sees_no_token_but_the_one_it_carries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "CW_KEY_ID", "CW_KEY_SECRET", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "not-to-be-sent")
    monkeypatch.setenv("GHCR_TOKEN", "sekrit")
    iris = program(tmp_path, f"env > {tmp_path}/env; echo /root/n")
    assert iris.submit(job(secrets={"TOKEN": "sekrit"}), tmp_path) == "/root/n"
    seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert [name for name, value in seen.items() if "sekrit" in value] == ["IRIS_IMAGES_SECRET_TOKEN"]
    assert "not-to-be-sent" not in seen.values()
    assert json.loads(seen["MARIN_PROVENANCE"])["command_line"] == []


def test_a_poll_that_fails_is_no_end(tmp_path: Path) -> None:
    iris = program(tmp_path, "echo 'ConnectError: Connection refused' >&2; exit 1")
    news: list[Update] = []
    with pytest.raises(StillRunning, match="still pending"):
        watch(iris, "/root/n", interval=0.1, deadline_seconds=0.5, on_update=news.append)
    assert any("did not reach" in update.trouble for update in news)
    assert {update.state for update in news} == {JobState.PENDING}


def test_a_job_that_the_controller_forgot_has_disappeared(tmp_path: Path) -> None:
    known = json.dumps({"job": {"state": "JOB_STATE_RUNNING"}})
    iris = program(
        tmp_path,
        f"""case "$*" in *logs*) exit 0 ;; esac
        if [ ! -e {tmp_path}/asked ]; then touch {tmp_path}/asked; echo '{known}'; exit; fi
        echo 'ConnectError: Job /root/n not found' >&2; exit 1""",
    )
    with pytest.raises(IrisError, match="disappeared"):
        watch(iris, "/root/n", interval=0.01, deadline_seconds=30, on_update=lambda update: None)


def test_a_stream_that_broke_off_is_resumed_without_repeating_lines(tmp_path: Path) -> None:
    line = "[20:28:12] task=/root/n/0 attempt=0 | "
    iris = program(
        tmp_path,
        f"""case "$*" in *logs*)
          echo '{line}one'
          if [ -e {tmp_path}/broke ]; then echo '{line}two'; touch {tmp_path}/done; fi
          touch {tmp_path}/broke; exit ;;
        esac
        state=RUNNING; [ ! -e {tmp_path}/done ] || state=SUCCEEDED
        echo "{{\\"job\\": {{\\"state\\": \\"JOB_STATE_$state\\"}}}}" """,
    )
    news: list[Update] = []
    ended = watch(iris, "/root/n", interval=0.2, deadline_seconds=30, on_update=news.append)
    assert ended.state is JobState.SUCCEEDED
    assert [line.text for update in news for line in update.lines] == ["one", "two"]
