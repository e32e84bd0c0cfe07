"""The whole road of docs/releasing.md on this machine: build, verify, smoke, promote, go back, pin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts import command
from scripts.local import sources
from tests.conftest import CACHE, git
from tests.local.place import ROOT, Place


def floating(record: dict[str, Any]) -> str:
    """What the floating tag gives."""
    return command.output(["crane", "digest", f"{record['destination'].split(':tpu-')[0]}:tpu"])


def fit(place: Place, task: str, *words: str) -> None:
    """Verify and smoke the last build; the verdict of neither is a failure."""
    assert not place.inv(f"verify.{task}", *words).stdout.startswith("fail")
    assert "assert ok: harbor" in place.inv(f"smoke.{task}").stdout


def test_tpu_is_promoted_twice_and_taken_back(place: Place, tpu: dict[str, Any], tmp_path: Path) -> None:
    ref = f"--ref={tpu['result']['digest']}"
    place.inv("verify.tpu", ref, "--inside")
    place.inv("smoke.tpu", ref)
    place.inv("promote.tpu", f"--digest={tpu['result']['digest']}", "--yes")
    assert floating(tpu) == tpu["result"]["digest"]

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(ROOT), str(clone))
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "another commit")
    second, _ = place.build("tpu", f"--context={clone}")
    fit(place, "tpu", f"--context={clone}", "--commit=HEAD")
    shown = place.inv("promote.tpu", "--digest", "--yes", f"--context={clone}").stderr
    assert f"tpu-{git(clone, 'rev-parse', 'HEAD')}" in shown
    assert floating(tpu) == second["result"]["digest"]

    place.inv("rollback.tpu", "--yes")
    assert floating(tpu) == tpu["result"]["digest"]
    assert second["result"]["digest"] in place.inv("promotions.tpu").stdout


def test_gpu_rl_is_pinned_in_the_launcher_of_the_small_repository(place: Place, tmp_path: Path) -> None:
    gpurl, _ = place.build("gpurl")
    ref = f"--ref={gpurl['result']['digest']}"
    place.inv("verify.gpurl", ref, "--inside")
    place.inv("smoke.gpurl", ref)
    launcher = tmp_path / "launcher"
    git(tmp_path, "clone", "--quiet", str(sources.make(CACHE, 0).folder / "ot-agent.git"), str(launcher))
    place.inv("pin.gpurl", f"--digest={gpurl['result']['digest']}", f"--launcher={launcher}")
    names: dict[str, str] = {}
    exec((launcher / "rl/cloud/launch_rl_iris.py").read_text(), names)  # noqa: S102
    assert names["DEFAULT_RL_DOCKER_IMAGE"] == gpurl["result"]["reference"]
    assert gpurl["result"]["reference"] in place.inv("pins.check", f"--path={launcher}", ok=(15,)).stdout
    attached = place.inv("record.gpurl", f"--build={gpurl['id']}", "--attach").stdout
    elsewhere = Place(tmp_path / "elsewhere", place.env)
    whole = f"--ref={gpurl['result']['reference']}"
    assert elsewhere.inv("record.gpurl", "--from-registry", whole).stdout == attached
