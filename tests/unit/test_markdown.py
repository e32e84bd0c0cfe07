"""Records as Markdown: read back as GitHub reads it, every value is what it was."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from scripts import markdown

DIGEST = "sha256:" + "ab" * 32
RECORD: dict[str, Any] = {
    "schema": 1,
    "id": "tpu-1111-1201-000000-abcd",
    "image": "tpu",
    "created": "2026-12-01T00:00:00Z",
    "state": "pushed",
    "task": "tpu",
    "variant": "",
    "architecture": "amd64",
    "cluster": "cw-us-east-02a",
    "commit": "1" * 40,
    "dirty": False,
    "destination": "ghcr.io/team/image:tpu-1",
    "pins": {"VLLM_TPU_VERSION": "0.20.0", "HARBOR_COMMIT": "2" * 40},
    "inputs": {"EXECUTOR_IMAGE": f"ghcr.io/team/kaniko@{DIGEST}"},
    "ended": "2026-12-01T00:10:00Z",
    "result": {
        "reference": f"ghcr.io/team/image@{DIGEST}",
        "digest": DIGEST,
        "layers": [{"digest": DIGEST, "size": 3_000_000_000}, {"digest": DIGEST, "size": 1}],
        "largest": 3_000_000_000,
        "total": 3_000_000_001,
    },
    "verified": [
        {"verdict": "fail"},
        {
            "when": "2026-12-01T00:11:00Z",
            "reference": f"ghcr.io/team/image@{DIGEST}",
            "digest": DIGEST,
            "verdict": "warn",
            "read": {"from": "ghcr.io/team/image", "requests": 1, "bytes": 5858, "login": False},
            "checks": [
                {"check": "layers", "expected": "> 20", "seen": "2", "verdict": "warn", "next": "split | it"},
                {"check": "tag", "expected": "a", "seen": "a", "verdict": "pass", "next": ""},
            ],
        },
    ],
    "smoked": [
        {"verdict": "fail"},
        {
            "when": "2026-12-01T00:12:00Z",
            "cluster": "cw-us-east-02a",
            "job": "/somebody/smoke-tpu",
            "reference": f"ghcr.io/team/image@{DIGEST}",
            "digest": DIGEST,
            "verdict": "pass",
            "asserts": ["assert ok: jax: imports jax", "assert ok: vllm: 0.20.0"],
            "error": "",
        },
    ],
}


def cell(shown: str) -> str:
    """The text that a reader sees in a cell."""
    if re.fullmatch("`[^`]+`", shown):
        return shown[1:-1]
    plain = re.sub("^<code>|</code>$", "", shown).replace("<br>", "\n")
    assert not re.search(r"[<>`*~\[\]\\]|_(?=\W|$)|(?<!\w)_", plain), "nothing in it is read as Markdown"
    return html.unescape(plain)


def tables(text: str) -> list[list[list[str]]]:
    """The rows of every table, heads left out; a row has as many cells as its head."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, rule, *rows = ([part.strip() for part in line[1:-1].split("|")] for line in block.splitlines())
        assert set(rule) == {"---"}
        assert {len(row) for row in [head, rule, *rows]} == {len(head)}
        found.append([[cell(part) for part in row] for row in rows])
    return found


def test_a_full_record_shows_the_newest_of_everything() -> None:
    shown = markdown.render(RECORD)
    assert shown.startswith("## tpu: pushed, verify warn, smoke pass\n")
    facts, pins, verified, checks, smoked = tables(shown)
    assert dict(facts) == {
        "image": f"ghcr.io/team/image@{DIGEST}",
        "tag": "ghcr.io/team/image:tpu-1",
        "commit": "1" * 40,
        "dirty": "no",
        "architecture": "amd64",
        "cluster": "cw-us-east-02a",
        "executor": f"ghcr.io/team/kaniko@{DIGEST}",
        "build": "tpu-1111-1201-000000-abcd",
        "created (UTC)": "2026-12-01T00:00:00Z",
        "ended (UTC)": "2026-12-01T00:10:00Z",
        "layers": "2",
        "largest layer": "3.000 GB (3,000,000,000 bytes)",
        "all layers": "3.000 GB (3,000,000,001 bytes)",
    }
    assert dict(pins) == RECORD["pins"]
    newest = RECORD["verified"][-1]
    assert dict(verified)["digest"] == DIGEST
    assert dict(verified)["read: requests"] == "1"
    assert dict(verified)["read: login"] == "no"
    assert checks == [list(check.values()) for check in newest["checks"]]
    assert dict(smoked)["asserts"] == "assert ok: jax: imports jax\nassert ok: vllm: 0.20.0"


def test_a_failed_build_shows_its_sentence_and_no_log() -> None:
    error = "run-failed in the phase build: exit code 1.\n\n  a line of the log\n\nNext: mend *the* step."
    failed = {key: value for key, value in RECORD.items() if key not in ("result", "verified", "smoked")}
    shown = markdown.render({**failed, "state": "failed", "error": error, "exit_code": 20})
    assert shown.startswith("## tpu: failed\n")
    assert (
        "**Exit code 20.** run-failed in the phase build: exit code 1.<br>Next: mend &#42;the&#42; step"
        in shown
    )
    assert "a line of the log" not in shown
    assert "layers" not in shown


@pytest.mark.parametrize(
    "value",
    [
        "a|b", "`a`", "a`", "|", "`", "one\ntwo", "one\r\ntwo", "\n", "<br>", "<b>x</b>", "&#124;", "a\\|b",
        "\\", "_a_", "*a* | __b__", "[a](b) |", "~~a~~", " a", "a ", " ", "`|\\`\n|---|---|\n", "é — 漢字",
    ],
)  # fmt: skip
def test_no_character_breaks_a_table(value: str) -> None:
    newest = RECORD["verified"][-1]
    check = dict.fromkeys(("check", "expected", "seen", "verdict", "next"), value)
    nasty = {
        **RECORD,
        "cluster": value,
        "pins": {"A": value, value: "1"},
        "verified": [{**newest, "verdict": value, "checks": [check]}],
        "smoked": [{**RECORD["smoked"][-1], "asserts": [value]}],
    }
    facts, pins, verified, checks, smoked = tables(markdown.render(json.loads(json.dumps(nasty))))
    assert dict(facts)["cluster"] == dict(verified)["verdict"] == dict(smoked)["asserts"] == value
    assert dict(pins) == nasty["pins"]
    assert checks == [[value] * 5]


def test_no_value_moves_a_cursor() -> None:
    shown = markdown.render({**RECORD, "cluster": "\x1b[2K\u202ehidden", "image": "\x1b[1A"})
    assert "\x1b" not in shown
    assert "\u202e" not in shown
