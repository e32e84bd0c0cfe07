"""A proxy in front of a registry that injects faults at the network's edge, and keeps what it was asked."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNK = 1 << 16
TRICKLE = 64
OWN_HEADERS = ("content-length", "transfer-encoding", "connection", "date", "server")


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request; by default nothing.

    Attributes:
        status: answer with it, `headers` and `body`; the registry is not asked. 0: pass the request on.
        cut_after: the connection ends after so many bytes of the body.
        flip: of that byte of the body one bit is inverted.
        pause: seconds before anything is answered; a very long one never answers.
        chunk_pause: seconds between pieces of TRICKLE bytes of the body.
        drop_range: the registry does not see the Range header.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b'{"errors":[{"code":"DENIED"}]}'
    cut_after: int = -1
    flip: int = -1
    pause: float = 0.0
    chunk_pause: float = 0.0
    drop_range: bool = False


NONE = Fault()
Choose = Callable[[str, str, str], Fault | int | None]
"""From method, path and Authorization to the fault; a number is a status, 0 or None passes the request on."""


class Proxy(ThreadingHTTPServer):
    """A running proxy.

    Attributes:
        requests: (method, path, Authorization) of each request.
        sent: bytes of all bodies that it sent.
    """

    daemon_threads = True

    def __init__(self, upstream: int, choose: Choose) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream, self.choose = upstream, choose
        self.requests: list[tuple[str, str, str]] = []
        self.sent = 0
        self.over, self.lock = threading.Event(), threading.Lock()

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return int(self.server_address[1])

    def handle_error(self, *_: object) -> None:
        """Say nothing: a client that goes away is what many tests are about."""

    def count(self, size: int) -> None:
        """Add to `sent`."""
        with self.lock:
            self.sent += size


class Handler(BaseHTTPRequestHandler):
    """One connection to the proxy."""

    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, *_: object) -> None:
        """Say nothing: a test reads `requests`."""

    def pass_on(self) -> None:
        """Answer with a fault, or with what the registry answers."""
        asked = (self.command, self.path, self.headers.get("Authorization", ""))
        self.server.requests.append(asked)
        body = self._body()
        chosen = self.server.choose(*asked)
        fault = chosen if isinstance(chosen, Fault) else Fault(status=chosen) if chosen else NONE
        if fault.pause and self.server.over.wait(fault.pause):
            self.close_connection = True
        elif fault.status:
            headers = {"Content-Type": "application/json", "WWW-Authenticate": 'Basic realm="test"'}
            self._answer(fault.status, {**headers, **fault.headers}, len(fault.body), [fault.body], fault)
        else:
            self._from_registry(body, fault)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on

    def _from_registry(self, body: bytes, fault: Fault) -> None:
        headers = dict(self.headers) | {"Host": f"127.0.0.1:{self.server.port}"}
        if fault.drop_range:
            headers.pop("Range", None)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        pieces = iter(lambda: answer.read(CHUNK), b"")
        length = int(answer.getheader("Content-Length") or 0)
        if answer.getheader("Content-Length") is None:
            whole = answer.read()
            length, pieces = len(whole), iter([whole])
        self._answer(answer.status, dict(answer.getheaders()), length, pieces, fault)
        connection.close()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        del self.headers["Transfer-Encoding"]
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(
        self, status: int, headers: Mapping[str, str], length: int, pieces: Iterable[bytes], fault: Fault
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in OWN_HEADERS:
                # A header may hold any bytes; http.server writes characters as Latin-1.
                self.send_header(name, value.encode().decode("latin-1"))
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        for piece in _harmed(pieces, fault):
            self.wfile.write(piece)
            self.server.count(len(piece))
            if fault.chunk_pause and self.server.over.wait(fault.chunk_pause):
                break
        self.close_connection = self.close_connection or 0 <= fault.cut_after < length


def _harmed(pieces: Iterable[bytes], fault: Fault) -> Iterator[bytes]:
    """The body in pieces, with a bit flipped, cut, or in small pieces, as the fault says."""
    at = 0
    for whole in pieces:
        step = TRICKLE if fault.chunk_pause else CHUNK
        for start in range(0, len(whole), step):
            piece = bytearray(whole[start : start + step])
            if at <= fault.flip < at + len(piece):
                piece[fault.flip - at] ^= 1
            if 0 <= fault.cut_after < at + len(piece):
                yield bytes(piece[: fault.cut_after - at])
                return
            yield bytes(piece)
            at += len(piece)


@contextmanager
def faulty(upstream: int, choose: Choose) -> Iterator[Proxy]:
    """Pass requests on to a registry on 127.0.0.1, with the faults that `choose` gives.

    A fault that never answers ends with the block.
    """
    with Proxy(upstream, choose) as proxy:
        # It looks so often, in seconds, whether it shall end.
        threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.over.set()
            proxy.shutdown()
