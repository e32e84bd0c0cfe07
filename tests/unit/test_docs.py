"""What the documents promise."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from scripts import errors

ROOT = Path(__file__).resolve().parents[2]


def fenced(heading: str) -> str:
    """The one fenced block below a heading of the README."""
    match = re.search(rf"^## {heading}\n.*?^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert match
    return match[1].strip()


def test_ci_runs_exactly_the_test_command_of_the_readme() -> None:
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == fenced("Test it")


def test_the_two_first_commands_are_one_line_each() -> None:
    assert "\n" not in fenced("Try it") + fenced("Test it")


def test_every_exit_code_is_in_the_table() -> None:
    table = set(re.findall(r"^\| (\d+) \|", (ROOT / "docs/exit-codes.md").read_text(), re.M))
    classes = [item for _, item in inspect.getmembers(errors, inspect.isclass)]
    codes = [item.exit_code for item in classes if issubclass(item, errors.IrisImagesError)]
    assert {str(code) for code in codes} <= table
    assert len(set(codes)) == len(codes)
