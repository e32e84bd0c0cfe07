"""A proxy in front of a registry that injects faults at the network's edge, and keeps what it was asked."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Fault = Callable[[str, str, str], int]
"""From method, path and Authorization to the status to answer with; 0 passes the request on."""
OWN_HEADERS = ("content-length", "transfer-encoding", "connection", "date", "server")


class Proxy(ThreadingHTTPServer):
    """A running proxy; `requests` holds (method, path, Authorization) of each request."""

    def __init__(self, upstream: int, fault: Fault) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream, self.fault = upstream, fault
        self.requests: list[tuple[str, str, str]] = []

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return int(self.server_address[1])


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
        if status := self.server.fault(*asked):
            headers = {"Content-Type": "application/json", "WWW-Authenticate": 'Basic realm="test"'}
            self._answer(status, headers, b'{"errors":[{"code":"DENIED"}]}')
            return
        headers = dict(self.headers) | {"Host": f"127.0.0.1:{self.server.port}"}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        self._answer(answer.status, dict(answer.getheaders()), answer.read())
        connection.close()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on

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

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in OWN_HEADERS:
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def faulty(upstream: int, fault: Fault) -> Iterator[Proxy]:
    """Pass requests on to a registry on 127.0.0.1, but for those that `fault` answers itself."""
    with Proxy(upstream, fault) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy
        proxy.shutdown()
