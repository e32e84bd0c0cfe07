"""The seam for processes, with real processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from scripts import command
from scripts.errors import CommandFailed, CommandTimeout, ToolMissing


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_streams_are_apart_and_input_is_given() -> None:
    result = command.run(["sh", "-c", "cat; echo err >&2"], timeout=10, text_in="in")
    assert (result.stdout, result.stderr, result.code) == ("in", "err\n", 0)


def test_output_that_is_not_utf8_survives_a_c_locale() -> None:
    result = command.run(
        python("import sys; sys.stdout.buffer.write(b'\\xff \\xe2\\x80\\x94')"),
        timeout=10,
        env={"LC_ALL": "C"},
    )
    assert result.stdout == "\ufffd \u2014"


def test_a_failure_says_command_code_and_last_lines_with_secrets_masked() -> None:
    with pytest.raises(CommandFailed) as caught:
        command.run(["sh", "-c", "echo tok-1 >&2; exit 3", "tok-1"], timeout=10, secrets=["tok-1"])
    assert caught.value.code == 3
    assert "exit code 3" in str(caught.value)
    assert "tok-1" not in str(caught.value) + caught.value.stderr


def test_a_shorter_secret_does_not_uncover_a_longer_one() -> None:
    assert command.mask("abcdef", ["abc", "abcdef"]) == "***"


def test_a_time_out_ends_the_whole_group(tmp_path: Path) -> None:
    child = tmp_path / "child"
    with pytest.raises(CommandTimeout):
        command.run(["sh", "-c", f"sleep 600 & echo $! >{child}; wait"], timeout=0.5)
    wait_until_gone(int(child.read_text()))


def test_an_interrupt_ends_the_whole_group(tmp_path: Path) -> None:
    child = tmp_path / "child"

    def interrupt_when_started() -> None:
        while not (child.exists() and child.read_text()):
            time.sleep(0.1)
        time.sleep(0.2)  # by now run() waits for the end
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_when_started).start()
    with pytest.raises(KeyboardInterrupt):
        command.run(["sh", "-c", f"sleep 600 & echo $! >{child}; wait"], timeout=60)
    wait_until_gone(int(child.read_text()))


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ToolMissing, match="no-such-program is not on PATH"):
        command.run(["no-such-program"], timeout=1)


def test_environment_changes_and_removals() -> None:
    os.environ["IRIS_IMAGES_TEST"] = "here"
    text = "import os; print(os.environ.get('IRIS_IMAGES_TEST'), os.environ.get('NEW'))"
    try:
        assert command.output(python(text), env={"IRIS_IMAGES_TEST": None, "NEW": "1"}) == "None 1"
        assert command.output(python(text), inherit_env=False) == "None None"
    finally:
        del os.environ["IRIS_IMAGES_TEST"]


def wait_until_gone(pid: int) -> None:
    """A killed process ends soon, not at once; one that was spared would sleep on, and the test with it."""
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
