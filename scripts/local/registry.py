"""A real OCI registry on loopback that keeps its tags and blobs between runs (CNCF distribution)."""

from __future__ import annotations

import itertools
import json
import secrets
from pathlib import Path

from scripts.cache import locked
from scripts.local import services, toolchain

FIRST_PORT = 5005


def up(
    cache: Path,
    state: Path,
    *,
    port: int | None = None,
    htpasswd: Path | None = None,
    name: str = "registry",
    on_demand: bool = True,
) -> services.Running:
    """Start the registry unless it lives already; its storage is `<state>/<name>-data`.

    Args:
        cache: where the compiled program is kept.
        state: the folder of its configuration, its storage and its log.
        port: on 127.0.0.1; by default the one of the last time, at first a free one from 5005 on:
            a reference holds the port, so it stays the same.
        htpasswd: users and bcrypt hashes; without it everybody on this machine may read and write.
        on_demand: the last build that used it stops it.

    Raises:
        ToolMissing: it does not start, or another program listens on its port.
    """
    state.mkdir(parents=True, exist_ok=True)
    with locked(state / f"{name}.up.lock"):
        port = port or int(services.kept(state / f"{name}.port", _free_port))
        settings = state / f"{name}.yml"
        settings.write_text(_settings(state / f"{name}-data", port, htpasswd))
        # The secret signs uploads in progress: kept, so that one that a restart interrupted can go on.
        secret = services.kept(state / f"{name}.secret", lambda: secrets.token_hex(32))
        return services.up(
            state,
            name,
            [toolchain.registry(cache), "serve", settings],
            port=port,
            # Nothing of the user's: REGISTRY_* would change the configuration, OTEL_* send data out.
            inherit_env=False,
            env={"OTEL_TRACES_EXPORTER": "none", "REGISTRY_HTTP_SECRET": secret},
            on_demand=on_demand,
        )


def expected_port(state: Path, name: str = "registry") -> int:
    """The port that `up` would take now; nothing is written."""
    file = state / f"{name}.port"
    return int(file.read_text() if file.exists() else _free_port())


def _free_port() -> str:
    return str(next(port for port in itertools.count(FIRST_PORT) if not services.listening(port)))


def _settings(data: Path, port: int, htpasswd: Path | None) -> str:
    """The registry's configuration, in JSON: every JSON document is YAML."""
    users = {"htpasswd": {"realm": "local registry", "path": str(htpasswd)}}
    settings = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(data.resolve())}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}"},
        **({"auth": users} if htpasswd else {}),
    }
    return json.dumps(settings, indent=2)
