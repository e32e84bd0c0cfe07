"""Records of builds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts import records
from scripts.errors import InputError


def test_an_interrupted_write_leaves_the_last_whole_state(tmp_path: Path) -> None:
    record = records.create(tmp_path, "gpu-rl", "build-1", commit="c")
    with pytest.raises(TypeError):
        record.update(broken=object())
    assert records.load(tmp_path, "gpu-rl").data["commit"] == "c"


def test_the_newest_is_shown_and_any_can_be_named(tmp_path: Path) -> None:
    for build in ("b", "a"):
        records.create(tmp_path, "tpu", build)
    assert records.load(tmp_path).id == records.load(tmp_path, "tpu").id == "a"
    assert records.load(tmp_path, "tpu", "b").id == "b"
    with pytest.raises(InputError, match="No build x of tpu"):
        records.load(tmp_path, "tpu", "x")


def test_names_are_unique_and_fit_a_pod() -> None:
    names = {records.name("gpurl", "f" * 40) for _ in range(50)}
    assert len(names) == 50
    assert all(
        len(name) <= 63 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in names
    )


def test_what_two_add_at_once_is_both_there(tmp_path: Path) -> None:
    path = records.create(tmp_path, "tpu", "build").path
    with ThreadPoolExecutor(8) as pool:
        for number in range(40):
            pool.submit(records.Record(path, {}).add, "verified", {"verdict": "pass", "digest": str(number)})
    kept = records.load(tmp_path, "tpu").data["verified"]
    assert sorted(int(entry["digest"]) for entry in kept) == list(range(40))
