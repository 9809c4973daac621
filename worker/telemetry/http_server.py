"""A small HTTP server answers GET and HEAD. Each connection has one thread and one request, and everything has a limit.

The port asks for no login, so what a client can use up is bounded: `MOST_CONNECTIONS` threads, each with a head of
`LONGEST_HEAD` bytes and an answer, for `CONNECTION_TIMEOUT`. The standard library's server reads 100 headers of 64 KiB.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

from worker.core.failures import BadConfiguration

Answer = tuple[HTTPStatus, bytes, str]

READ_TIMEOUT = 5.0  # seconds that a client may be silent, or take to read its answer; probes and scrapers need none
CONNECTION_TIMEOUT = 10.0  # seconds for all of a request, however slowly it is sent
LONGEST_HEAD = 16 << 10  # of a request, bytes; browsers send one or two kilobytes
MOST_CONNECTIONS = 64  # at once; one more closes the oldest, which is the slowest, so that a probe is answered
TEXT = "text/plain; charset=utf-8"
# The page runs its own script and style alone, talks to its own worker alone, and never shows an answer from a cache.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TOO_LARGE = f"a request's head has more than {LONGEST_HEAD} bytes\n".encode()


class HttpServer(ThreadingTCPServer):
    """Listens and answers from its creation until `close`. `url` is its address."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 2 * MOST_CONNECTIONS  # with 5, as in the base class, some of a burst wait for a second

    def __init__(self, address: str, port: int, answer: Callable[[str, str], Answer]) -> None:
        """`answer` is called with path and `Host`, on the connections' threads. Port 0 takes any free one.

        Raises `BadConfiguration` where it cannot listen.
        """
        self.answer = answer
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._since: dict[socket.socket, float] = {}  # connections, the oldest first
        try:
            super().__init__((address, port), _Connection)
        except OSError as error:
            raise BadConfiguration(
                f"cannot listen on {address}:{port}: {error.strerror or error}; set WORKER_TELEMETRY__HTTP_ADDRESS and "
                "WORKER_TELEMETRY__HTTP_PORT (0 takes any free port)"
            ) from error
        host, self.port = str(self.server_address[0]), int(self.server_address[1])
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._thread = Thread(target=self.serve_forever, args=(0.1,), name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: a client that leaves in the middle of its answer is not worth a line."""

    def process_request(self, request: Any, client_address: Any) -> None:
        known = list(self._since)
        for oldest in known[: max(0, len(known) + 1 - MOST_CONNECTIONS)]:
            self._hang_up(oldest)
        self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close overdue connections. The server's own thread calls this ten times a second."""
        overdue = time.monotonic() - CONNECTION_TIMEOUT
        for request in [request for request, since in self._since.copy().items() if since < overdue]:
            self._hang_up(request)

    def _hang_up(self, request: socket.socket) -> None:
        """Shut a connection down. Its thread then finds the connection's end, and closes it."""
        self._since.pop(request, None)
        with suppress(OSError):  # it was closed just now
            request.shutdown(socket.SHUT_RDWR)


class _Connection(StreamRequestHandler):
    """One request and its answer, on a thread of its own. A body is not read: no path takes one."""

    request: socket.socket
    server: HttpServer

    def handle(self) -> None:
        self.request.settimeout(READ_TIMEOUT)
        lines, left = list[str](), LONGEST_HEAD + 1
        while left and (line := self.rfile.readline(left)).strip():
            lines.append(line.decode("latin-1").rstrip())
            left -= len(line)
        if left:
            self._send(*self._answer(lines), is_head="".join(lines[:1]).startswith("HEAD "))
            return
        self._send(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _TOO_LARGE, TEXT)
        # Read on until the client ends: an earlier close would discard the answer, which is still on its way.
        self.request.shutdown(socket.SHUT_WR)
        while self.request.recv(LONGEST_HEAD):
            pass

    def _answer(self, lines: list[str]) -> Answer:
        line, *fields = lines or [""]
        method, _, rest = line.partition(" ")
        path, _, version = rest.partition(" ")
        if not path or not version.startswith("HTTP/1."):
            return HTTPStatus.BAD_REQUEST, b"this is no HTTP request\n", TEXT
        if method not in {"GET", "HEAD"}:
            return HTTPStatus.NOT_IMPLEMENTED, b"only GET and HEAD are answered here\n", TEXT
        hosts = (value for name, _, value in (field.partition(":") for field in fields) if name.lower() == "host")
        return self.server.answer(path, next(hosts, "").strip())

    def _send(self, status: HTTPStatus, body: bytes, content_type: str, *, is_head: bool = False) -> None:
        """Send the answer in one piece: each piece waits for the interpreter, which a busy loop holds."""
        fields = {"Content-Type": content_type, "Content-Length": len(body), **HEADERS}
        lines = [f"HTTP/1.0 {status} {status.phrase}", *(f"{name}: {value}" for name, value in fields.items())]
        self.request.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode() + (b"" if is_head else body))
