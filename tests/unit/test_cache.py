"""Cache entries are whole or absent."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from scripts import cache


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "f").write_text("x")

    threads = [threading.Thread(target=cache.entry, args=(tmp_path, "thing", "k", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert (cache.entry(tmp_path, "thing", "k", make) / "f").read_text() == "x"


def test_an_interrupted_entry_is_made_again_from_nothing(tmp_path: Path) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.entry(tmp_path, "thing", "k", interrupted)
    whole = cache.entry(tmp_path, "thing", "k", lambda folder: (folder / "whole").touch())
    assert [path.name for path in whole.iterdir()] == ["whole"]


def test_keys_do_not_run_together(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("bc")
    assert cache.key("a", file) == cache.key("a", "bc") != cache.key("ab", "c")
