"""Values that look like a secret, in what everybody who can pull an image can read: env, labels, history.

Only where and what kind is told, never the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# The fixed beginnings that the issuers document for their tokens.
TOKENS = {
    "GitHub token": r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}",
    "Hugging Face token": r"hf_[A-Za-z0-9]{30,}",
    "Docker Hub token": r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}",
    "AWS access key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "Google API key": r"\bAIza[A-Za-z0-9_-]{35}",
    "GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "Slack token": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "PyPI token": r"\bpypi-[A-Za-z0-9_-]{50,}",
    "API key of a model provider": r"\bsk-[A-Za-z0-9_-]{20,}",
    "JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+",
    "login in a header": r"(?i)authorization: *(?:bearer|basic) +[A-Za-z0-9._~+/=-]{16,}",
    "private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "password in a URL": r"\b[a-z][a-z0-9+.-]*://[^\s/:@$]*:[^\s/@${][^\s/@]*@",
}
KINDS = {kind: re.compile(pattern) for kind, pattern in TOKENS.items()}
SECRET_NAME = re.compile(
    r"\b((?:[A-Z0-9]+_)*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIAL)"
    r"(?:_[A-Z0-9]+)*)[=:]\s*[\"']?([^\s\"']+)",
    re.IGNORECASE,
)
HARMLESS = re.compile(r"[$<%/]|(?:none|null|unset|true|false|\d+|\*+)$", re.IGNORECASE)
"""Values behind such a name that hold nothing: a variable, a placeholder, a path, a switch."""


def found(config: Mapping[str, Any]) -> list[str]:
    """Where in an image's configuration something looks like a secret, and like which kind, in words."""
    return [f"{kind} in {where}" for where, text in _texts(config) for kind in _kinds(text)]


def _texts(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    inner = config.get("config") or {}
    for pair in inner.get("Env") or []:
        yield f"env {pair.split('=', 1)[0]}", pair
    for name, value in (inner.get("Labels") or {}).items():
        yield f"label {name}", f"{name}={value}"
    for part in ("Cmd", "Entrypoint"):
        yield part, " ".join(inner.get(part) or [])
    for number, entry in enumerate(config.get("history") or [], 1):
        for key in ("created_by", "comment"):
            yield f"history entry {number}", entry.get(key) or ""


def _kinds(text: str) -> Iterator[str]:
    yield from (kind for kind, pattern in KINDS.items() if pattern.search(text))
    for name, value in SECRET_NAME.findall(text):
        if not HARMLESS.match(value):
            yield f"a value for {name}"
