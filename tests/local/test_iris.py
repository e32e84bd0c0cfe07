"""The real Iris on this machine: jobs through its controller and worker, and what happens to them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.errors import IrisError
from scripts.iris import local_cluster
from scripts.iris.cli import Iris, Job, JobState
from scripts.iris.watch_job_state import Update, watch
from scripts.local import services

SECRET = "sekrit-4711-of-the-test"
PATIENCE = 120.0


@pytest.fixture(scope="module")
def iris(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iris]:
    state = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as outside:
        outside.setenv("MARKER_OF_THE_CALLER", SECRET)
        running = local_cluster.up(cache, state)
    yield face(cache, running)
    services.down(state, local_cluster.NAME)


def face(cache: Path, running: services.Running) -> Iris:
    program = local_cluster.iris(local_cluster.environment(cache))
    return Iris(program, ("--controller-url", local_cluster.controller_url(running)))


def job(name: str, script: str, **changes: object) -> Job:
    plain = {"command": ("bash", "-c", script), "cpu": 2, "memory": "12GB", "disk": "40GB"}
    return Job(name, **{**plain, "timeout_seconds": 600, **changes})  # type: ignore[arg-type]


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


def alive(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    try:
        return state.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_failing_job_from_submission_to_its_last_line(
    iris: Iris, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    (tmp_path / "context.txt").write_text("bundled")
    script = """
        cat "$IRIS_WORKDIR/context.txt" && echo
        wc -c < "$RIGGING_SECRETS_DIR/TOKEN"
        echo "provenance $MARIN_PROVENANCE"
        echo "plain $PLAIN"
        env
        echo last >&2
        exit 7
    """
    sent = job("fails", script, env={"PLAIN": "a b=c"}, secrets={"TOKEN": SECRET})
    job_id = iris.submit(sent, tmp_path)
    news: list[Update] = []
    ended = watch(iris, job_id, interval=60, deadline_seconds=PATIENCE, on_update=news.append)

    lines = [line.text for update in news for line in update.lines]
    assert (ended.state, ended.exit_code) == (JobState.FAILED, 7)
    assert ended.started_at and ended.finished_at and ended.started_at <= ended.finished_at
    assert news[-1].state is JobState.FAILED
    assert "bundled" in lines
    assert str(len(SECRET)) in lines
    assert "plain a b=c" in lines
    assert "last" in lines
    provenance = next(line for line in lines if line.startswith("provenance "))
    assert json.loads(provenance.removeprefix("provenance "))["command_line"] == []
    assert sorted(line.text for line in iris.logs(job_id)) == sorted(lines)
    # Neither the job's own token, nor the caller's environment, nor the cluster's.
    assert SECRET not in "\n".join(lines)


def test_two_jobs_run_side_by_side_and_cancelling_one_leaves_the_other(iris: Iris, tmp_path: Path) -> None:
    meet = "touch {0}/{1}; until [ -e {0}/{2} ]; do sleep 0.1; done; touch {0}/{1}-met; "
    one = job("pair", meet.format(tmp_path, "a", "b") + "sleep 600")
    two = job("pair-2", meet.format(tmp_path, "b", "a") + f"until [ -e {tmp_path}/go ]; do sleep 0.1; done")
    empty = tmp_path / "bundle"
    empty.mkdir()
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(lambda each: iris.submit(each, empty), (one, two))
    until((tmp_path / "a-met").exists)
    until((tmp_path / "b-met").exists)

    assert iris.cancel(first) is JobState.KILLED
    assert iris.state(second) is JobState.RUNNING
    (tmp_path / "go").touch()
    ended = watch(iris, second, interval=5, deadline_seconds=PATIENCE, on_update=lambda update: None)
    assert (ended.state, ended.exit_code, ended.error) == (JobState.SUCCEEDED, None, "")
    assert iris.cancel(second) is JobState.SUCCEEDED


def test_an_unknown_job_is_absent(iris: Iris) -> None:
    assert iris.state("/nobody/nothing") is JobState.ABSENT
    assert iris.status("/nobody/nothing").state is JobState.ABSENT
    assert iris.logs("/nobody/nothing") == []
    with pytest.raises(IrisError, match="no job /nobody/nothing"):
        iris.cancel("/nobody/nothing")


def test_a_controller_that_is_not_there_is_said_to_be_so(iris: Iris) -> None:
    away = Iris(iris.program, ("--controller-url", f"http://127.0.0.1:{services.free_port()}"))
    with pytest.raises(IrisError, match="did not reach the controller"):
        away.state("/nobody/nothing")


def test_a_cluster_that_was_killed_leaves_nothing_and_starts_again(cache: Path, tmp_path: Path) -> None:
    state, bundle = tmp_path / "state", tmp_path / "bundle"
    bundle.mkdir()
    script = (
        f'echo "$$ $RIGGING_SECRETS_DIR" > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/task; sleep 600'
    )
    sent = job("sleeps", script, secrets={"TOKEN": SECRET})

    def start() -> tuple[services.Running, int, Path]:
        running = local_cluster.up(cache, state)
        (tmp_path / "task").unlink(missing_ok=True)
        face(cache, running).submit(sent, bundle)
        until((tmp_path / "task").exists)
        pid, secrets = (tmp_path / "task").read_text().split()
        assert (Path(secrets) / "TOKEN").read_text() == SECRET
        return running, int(pid), Path(secrets)

    killed, first_task, first_secrets = start()
    os.kill(killed.pid, signal.SIGKILL)
    until(lambda: services.find(state, local_cluster.NAME) is None)
    until(lambda: not alive(first_task))

    again, second_task, second_secrets = start()
    assert again.pid != killed.pid
    assert not first_secrets.exists()
    assert services.down(state, local_cluster.NAME)
    until(lambda: not alive(second_task))
    assert not second_secrets.exists()
    assert not any(path.is_dir() for path in (state / "iris-data").glob("iris_local_*"))
