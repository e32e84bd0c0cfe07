"""A record as Markdown, for an issue or a pull request: facts, pins, verification, smoke; no logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scripts.progress import size

UNSEEN = r"\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
"""What a terminal or a browser obeys instead of showing it."""
ACTIVE = re.compile(
    rf"\A\s|\s\Z|[&<>|`*~\[\]\\{UNSEEN}]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])",
)
"""What Markdown, or a table of it, would read as something else than text (GitHub Flavored Markdown)."""
LITERAL = re.compile(rf"(?!\s)[^|`{UNSEEN}]+(?<!\s)")
"""What can stand between backticks in a table as it is."""
LOOKS = {"verified": "verify", "smoked": "smoke"}
"""What was found out about an image after its build: the record's name for it, and the task's."""
Data = Mapping[str, Any]


def render(data: Data) -> str:
    """A record (schema 1) as Markdown: the newest verification and the newest smoke job of it are shown.

    Every value is in the text exactly, in a form that no character of it can break.
    """
    blocks = [f"## {_title(data)}", _failure(data), _pairs("fact", _facts(data))]
    if data.get("pins"):
        blocks += ["### Pins", _pairs("pin", data["pins"])]
    if data.get("verified"):
        blocks += _verified(data["verified"][-1])
    if data.get("smoked"):
        blocks += ["### Smoke", _pairs("fact", _smoke(data["smoked"][-1]))]
    return "\n\n".join(block for block in blocks if block) + "\n"


def text(value: object) -> str:
    """A value as plain text of one line; a line break in it is shown as one."""
    return ACTIVE.sub(
        lambda found: "<br>" if found[0] == "\n" else f"&#{ord(found[0])};",
        str(value),
    )


def code(value: object) -> str:
    """A value in the type of code, which nobody's emphasis or mention gets into."""
    shown = str(value)
    if not shown:
        return ""
    return f"`{shown}`" if LITERAL.fullmatch(shown) else f"<code>{text(shown)}</code>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table out of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _pairs(name: str, pairs: Data) -> str:
    return table([name, "value"], ([text(key), code(_said(value))] for key, value in pairs.items()))


def _said(value: object) -> object:
    return ("yes" if value else "no") if isinstance(value, bool) else value


def _title(data: Data) -> str:
    parts = [f"{text(data['image'])}: {text(data['state'])}"]
    parts += [f"{name} {text(data[key][-1]['verdict'])}" for key, name in LOOKS.items() if data.get(key)]
    return ", ".join(parts)


def _failure(data: Data) -> str:
    """What happened and what to do, without the lines of the log between the two."""
    if not data.get("error"):
        return ""
    return f"**Exit code {data['exit_code']}.** {text(_sentences(data['error']))}"


def _sentences(error: str) -> str:
    first, *rest = error.splitlines()
    return "\n".join([first, *(line for line in rest[-1:] if line.startswith("Next: "))])


def _facts(data: Data) -> dict[str, object]:
    result = data.get("result", {})
    facts = {
        "image": result.get("reference"),
        "tag": data.get("destination"),
        "commit": data.get("commit"),
        "dirty": data.get("dirty"),
        "variant": data.get("variant"),
        "architecture": data.get("architecture"),
        "cluster": data.get("cluster"),
        "executor": data.get("inputs", {}).get("EXECUTOR_IMAGE"),
        "build": data["id"],
        "created (UTC)": data["created"],
        "ended (UTC)": data.get("ended"),
    }
    if result:
        facts |= {"layers": len(result["layers"]), "largest layer": size(result["largest"])}
        facts |= {"all layers": size(result["total"])}
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _verified(found: Data) -> list[str]:
    facts = {"image": found["reference"], "digest": found["digest"], "verdict": found["verdict"]}
    facts |= {"when (UTC)": found["when"]}
    facts |= {f"read: {name}": value for name, value in found["read"].items()}
    head = ("check", "expected", "seen", "verdict", "next")
    rows = ([text(check[name]) for name in head] for check in found["checks"])
    return ["### Verified", _pairs("fact", facts), table(head, rows)]


def _smoke(found: Data) -> dict[str, object]:
    facts = {
        "image": found["reference"],
        "digest": found["digest"],
        "verdict": found["verdict"],
        "when (UTC)": found["when"],
        "cluster": found["cluster"],
        "job": found["job"],
        "asserts": "\n".join(found["asserts"]),
        "error": _sentences(found["error"]) if found["error"] else "",
    }
    return {name: value for name, value in facts.items() if value}
