"""The build script's fetch of 1 GB on loopback against curl and aria2c; `nox -s wheels` with nothing to do.

Each ends with the sha256 of what came; ours unpacks it as well. With a limit, the server gives so many bytes
a second to each connection, as storage behind registries does.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from scripts import command
from scripts.local import registry, services
from scripts.registry import crane
from tests.bench.measure import median, peak_memory, show, timed
from tests.conftest import CACHE
from tests.local.place import ROOT
from tests.local.test_wheel_fetch import SOURCED, pushed, wheelhouse

SIZE = 1_000_000_000
LIMIT = 50_000_000
"""Bytes a second on each connection."""
PIECE = 1 << 20
REPEATS = 3
SECONDS = 1800.0
FETCH = SOURCED + 'AUTHORIZATION=; mkdir -p out; unpacked "$1" "$2" "$3" --no-auto-compress 1 part out'
PEERS = {
    "curl": "curl -fsS -o blob {url}",
    "aria2c": "aria2c -q -x 4 -s 4 -k 1M --allow-overwrite --file-allocation=none -o blob {url}",
}


class Limited(BaseHTTPRequestHandler):
    """Gives ranges of one file, at LIMIT on each connection."""

    protocol_version = "HTTP/1.1"
    file: Path

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer with the range that was asked for, or with everything."""
        size = self.file.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last = (int(asked[1]), int(asked[2] or size - 1)) if asked else (0, size - 1)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        began, sent = time.monotonic(), 0
        with self.file.open("rb") as file:
            file.seek(first)
            while piece := file.read(min(PIECE, last - first + 1 - sent)):
                self.wfile.write(piece)
                sent += len(piece)
                time.sleep(max(0.0, sent / LIMIT - (time.monotonic() - began)))


def run(work: Path) -> None:
    """Run every measurement of wheels and print one line each."""
    running = registry.up(CACHE, work / "services")
    try:
        set_ = pushed(wheelhouse(work / "set", size=SIZE), f"127.0.0.1:{running.port}/bench/wheels")
        layer = max(crane.manifest(set_).data["layers"], key=lambda layer: layer["size"])
        words = (str(layer["digest"]), str(layer["size"]))
        url = f"http://{set_.host}/v2/{set_.path}/blobs/{words[0]}"
        against_peers("fetch of 1 GB", url, words, work)
        command.run(["curl", "-fsS", "-o", work / "served", url], timeout=SECONDS)
        with limited(work / "served") as far:
            against_peers(f"fetch of 1 GB, {LIMIT / 1e6:g} MB/s a connection", far, words, work)
    finally:
        services.down(work / "services", "registry")
    nothing_to_do(work)


def quietly(handler: Limited) -> None:
    """Serve one connection; a client that goes away is no news."""
    with suppress(BrokenPipeError, ConnectionResetError):
        BaseHTTPRequestHandler.handle(handler)


@contextmanager
def limited(file: Path) -> Iterator[str]:
    """A server of that file until the end of the block; its address."""
    # aria2c goes away in the middle of a range that it gives to another connection.
    handler = type("Handler", (Limited,), {"file": file, "handle": quietly})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/blob"
        server.shutdown()


def against_peers(what: str, url: str, words: tuple[str, str], work: Path) -> None:
    """Print the fetch beside each peer that this machine has, and the memory of its largest process."""
    argv = ["bash", "-c", FETCH, "fetch", url, *words]
    env = {"ROOT": str(ROOT), "SMALL": str(1 << 26)}

    def fetch() -> None:
        shutil.rmtree(work / "out", ignore_errors=True)
        command.run(argv, timeout=SECONDS, cwd=work, env=env)

    with peak_memory("curl") as peak:
        ours = median(fetch, REPEATS)
    print(f"{what}: peak memory of each of four curls {peak[0] / 1e6:.1f} MB")
    for name, line in PEERS.items():
        if shutil.which(name):
            peer = ["bash", "-c", f"{line.format(url=url)} && sha256sum blob"]
            theirs = median(lambda peer=peer: command.run(peer, timeout=SECONDS, cwd=work), REPEATS)  # type: ignore[misc]
            show(what, ours, f"{name} and sha256sum", theirs, "s")


def nothing_to_do(work: Path) -> None:
    """Print how long a repeated `nox -s wheels` takes when the wheelhouse holds the set."""
    env = {"INVOKE_PATHS_STATE": str(work / "state")}
    words = [sys.executable, "-m", "nox", "-s", "wheels", "--", "--set", "small"]
    first = timed(lambda: command.run(words, timeout=SECONDS, cwd=ROOT, env=env))
    again = median(lambda: command.run(words, timeout=SECONDS, cwd=ROOT, env=env), REPEATS)
    show("nox -s wheels with nothing to do", again, "the first run", first, "s")
