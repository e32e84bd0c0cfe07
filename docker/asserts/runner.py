"""What the asserts of every image share: the pins that were baked, and a run that tries all of them.

Plain Python of the image's own interpreter: nothing needs to be installed for it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

PROVENANCE = Path(__file__).with_name("provenance")
Pins = Mapping[str, str]
Check = Callable[[Pins], str]
"""Returns what was seen, in a few words; raises when it is not what the pins say."""


class Unmet(Exception):
    """One sentence: what was expected and what was seen."""


def baked_pins() -> dict[str, str]:
    """The pins that the image was built with, from the file that its build wrote."""
    lines = (PROVENANCE / "pins").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def expect(what: str, expected: object, seen: object) -> str:
    """Raise unless the two are equal; returns what was seen."""
    if expected != seen:
        raise Unmet(f"expected {what} to be {expected!r}, saw {seen!r}.")
    return f"{what} {seen}"


def importable(*names: str) -> str:
    """Import each module; the first that fails is named."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise Unmet(f"expected to import {name}, saw {type(error).__name__}: {error}.") from error
    return f"imports {', '.join(names)}"


def installed_commit(package: str) -> str:
    """The git commit that the package was installed from; empty when it came from elsewhere."""
    text = importlib.metadata.distribution(package).read_text("direct_url.json")
    commit: str = json.loads(text or "{}").get("vcs_info", {}).get("commit_id", "")
    return commit


def from_commit(package: str, commit: str) -> str:
    """The package imports, and was installed from exactly that commit."""
    importable(package)
    expect(f"the commit of {package}", commit, installed_commit(package))
    return f"{package} {importlib.metadata.version(package)} from commit {commit}"


def short_commit(version: str) -> str:
    """The abbreviated commit in a version such as 0.1.dev1+g8672c71e3.cu129; empty when there is none."""
    found = re.search(r"[+.]g([0-9a-f]{7,40})(?![0-9a-z])", version)
    return found.group(1) if found else ""


def run(checks: Mapping[str, Check]) -> int:
    """Try every check, print a line for each; returns the exit code: 0, or 1 when any failed."""
    pins = baked_pins()
    failed = sum(not _passes(name, check, pins) for name, check in checks.items())
    print(f"asserts: {len(checks) - failed} of {len(checks)} passed", flush=True)
    return 1 if failed else 0


def _passes(name: str, check: Check, pins: Pins) -> bool:
    try:
        print(f"assert ok: {name}: {check(pins)}", flush=True)
    except Unmet as unmet:
        print(f"assert failed: {name}: {unmet}", file=sys.stderr, flush=True)
        return False
    except Exception as error:
        traceback.print_exc()
        print(f"assert failed: {name}: expected no error, saw {error!r}.", file=sys.stderr, flush=True)
        return False
    return True
