"""The build scripts on the bare machine: they explain themselves, and touch nothing."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from scripts import build, command

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(ROOT.glob("docker/build_*_kaniko.sh"))
CONTRACT = {
    "GITSHA": "a" * 40,
    "IMAGE_REPOSITORY": "127.0.0.1:1/team/image",
    "REGISTRY_USER": "made-up",
    "REGISTRY_TOKEN": "made-up",
    "EXECUTOR_IMAGE": "127.0.0.1:1/x/y@sha256:" + "a" * 64,
    "CRANE_URL": "http://127.0.0.1:1/crane",
    "CRANE_SHA256": "a" * 64,
    "CONTEXT_SHA256": "a" * 64,
    "WHEEL_SOURCE": "wheel-builder",
}


def machine_state() -> set[tuple[str, int]]:
    return {
        (str(path), path.stat().st_mtime_ns)
        for folder in ("/", "/usr", "/etc")
        for path in Path(folder).iterdir()
    }


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
@pytest.mark.parametrize(
    "env", [{}, CONTRACT, {**CONTRACT, "IRIS_TASK_ID": "/me/job/0"}], ids=["bare", "contract", "task"]
)
def test_outside_of_a_disposable_root_they_refuse_and_change_nothing(
    script: Path, env: dict[str, str]
) -> None:
    before = machine_state()
    result = command.run(["bash", script], timeout=30, env=env, ok=None)
    assert result.code == 2
    assert "result=refused" in result.stderr
    assert machine_state() == before


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_first_process_of_its_own_namespace_is_not_enough(script: Path) -> None:
    root_type = command.output(["findmnt", "--noheadings", "--output=FSTYPE", "/"])
    assert root_type not in ("overlay", "tmpfs"), "this test needs a machine whose root is a disk"
    env = {**CONTRACT, "IRIS_TASK_ID": "/me/job/0"}
    words = ["unshare", "--map-root-user", "--user", "--pid", "--fork", "--mount-proc", "bash", script]
    result = command.run(words, timeout=30, env=env, ok=None)
    assert (result.code, "the root filesystem is" in result.stderr) == (2, True)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_help_names_the_whole_contract_and_every_exit_code(script: Path) -> None:
    text = command.output(["bash", script, "--help"])
    for name in CONTRACT:
        assert name in text or name == "WHEEL_SOURCE"
    for code in (2, 20, 21, 22, 23, 24, 25):
        assert str(code) in text


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_what_travels_is_one_script_in_one_variable(script: Path) -> None:
    packed = build.bundled(script)
    text = base64.b64decode(packed).decode()
    assert "\n" not in packed
    assert len(packed) < 128 * 1024, "Linux takes no longer variable"
    assert "source " not in [line.split("#")[0] for line in text.splitlines() if line.startswith("source")]
    assert subprocess.run(["bash", "-n", "-c", text], check=False).returncode == 0


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_missing_variable_is_named_before_anything_else(script: Path) -> None:
    said = command.run(
        ["bash", script], timeout=30, env={**CONTRACT, "CRANE_URL": "", "GITSHA": ""}, ok=None
    ).stderr
    assert "not set: GITSHA CRANE_URL;" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GITSHA", "main"),
        ("EXECUTOR_IMAGE", "ghcr.io/x/y:latest"),
        ("LAYER_CEILING", "4GB"),
        ("PUSH_ATTEMPTS", "0"),
        ("WHEEL_SOURCE", "somewhere"),
        ("INSTALL_MEGATRON", "yes"),
    ],
)
def test_a_value_that_cannot_be_is_named(name: str, value: str) -> None:
    script = ROOT / "docker/build_gpu_rl_kaniko.sh"
    result = command.run(["bash", script], timeout=30, env={**CONTRACT, name: value}, ok=None)
    assert (result.code, name in result.stderr, value in result.stderr) == (2, True, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("DOCKER_TOKEN", "REGISTRY_TOKEN"),
        ("GHCR_TOKEN", "REGISTRY_TOKEN"),
        ("DOCKER_USER_ID", "REGISTRY_USER"),
        ("GHCR_IMAGE_REPOSITORY", "IMAGE_REPOSITORY"),
    ],
)
def test_an_older_name_is_accepted_and_said_to_be_old(old: str, new: str) -> None:
    env: dict[str, str | None] = {**CONTRACT, new: None, old: CONTRACT[new]}
    said = command.run(["bash", ROOT / "docker/build_tpu_kaniko.sh"], timeout=30, env=env, ok=None).stderr
    assert f"{old} is an old name; use {new}" in said
    assert "not set" not in said
