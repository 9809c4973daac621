"""`/healthz`, `/readyz`, `/startupz`, `/metrics`, `/v2` and the live page over HTTP, on loopback unless told otherwise.

Its thread answers from the latest snapshot and touches no other state. Alive means that the loop turns and no inference
hangs. An absent broker does not count: a restart would not bring it back, and all replicas would restart at once.
"""

from __future__ import annotations

import socket
import socketserver
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

from worker.core.failures import BadConfiguration
from worker.telemetry.metrics.metric_values import Snapshot
from worker.telemetry.model_pages import ROOT, model_page
from worker.telemetry.page.live_page import LivePage
from worker.telemetry.page.status import Deployment
from worker.telemetry.watchdog import TimeLimits

if TYPE_CHECKING:
    from worker.telemetry.metrics.page import MetricsPage

READ_TIMEOUT = 5.0  # seconds a client may take over its request line; probes and scrapers send it at once
CONNECTION_TIMEOUT = 10.0  # seconds for all of a request, however slowly it is sent
MOST_CONNECTIONS = 64  # at once; beyond them the oldest, which is the slowest, is closed, so that a probe is answered
TEXT = "text/plain; charset=utf-8"
# The page runs its own script and style alone, talks to its own worker alone, and never shows an answer from a cache.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Answer = tuple[HTTPStatus, bytes, str]


def liveness(snapshot: Snapshot, now: float, limits: TimeLimits) -> str | None:
    """Why the worker counts as dead; None while it lives. A worker that has not begun to turn is starting, not dead."""
    if snapshot.turned_at is None:
        return None
    if snapshot.running_since is not None and now - snapshot.running_since > limits.run:
        return f"an inference has been running for {now - snapshot.running_since:.0f} s"
    if now - snapshot.turned_at > limits.turn:
        return f"the loop has not turned for {now - snapshot.turned_at:.0f} s"
    return None


def try_address(address: str) -> None:
    """Raises `BadConfiguration` when no server can listen on this address, on whatever port."""
    _listen(address, 0).server_close()


def _listen(address: str, port: int) -> _Server:
    try:
        return _Server(address, port)
    except OSError as error:
        raise BadConfiguration(
            f"cannot listen on {address}:{port}: {error.strerror or error}; set WORKER_TELEMETRY__HTTP_ADDRESS and "
            "WORKER_TELEMETRY__HTTP_PORT (0 takes any free port)"
        ) from error


class HealthServer:
    """Listens from its making until `close`. `url` tells where."""

    def __init__(
        self,
        address: str,
        port: int,
        *,
        latest: Callable[[], Snapshot],
        limits: TimeLimits,
        page_of: Deployment | None = None,
    ) -> None:
        """Port 0 takes any free one; `page_of` asks for the live page. Raises `BadConfiguration`."""
        self._server = _listen(address, port)
        self._server.pages = Pages(latest, limits, time.monotonic, page_of)
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __repr__(self) -> str:
        return f"<HealthServer {self.url}>"


class Pages:
    """What each path is answered, as values."""

    def __init__(
        self,
        latest: Callable[[], Snapshot],
        limits: TimeLimits,
        clock: Callable[[], float],
        page_of: Deployment | None = None,
    ) -> None:
        self._latest = latest
        self._limits = limits
        self._clock = clock
        self._page = None if page_of is None else LivePage(page_of, latest, self._dead, clock)

    def answer(self, path: str, accept: str) -> Answer:
        path = path.partition("?")[0]
        match path:
            case "/healthz":
                return _verdict(self._dead(self._latest()))
            case "/readyz":
                return _verdict(self._latest().unready)
            case "/startupz":
                snapshot = self._latest()
                return _verdict(snapshot.unready if snapshot.turned_at is None else None)
            case "/metrics":
                return HTTPStatus.OK, *self._metrics.render(accept)
        if path == ROOT or path.startswith(f"{ROOT}/"):
            snapshot = self._latest()
            return model_page(path, snapshot, self._dead(snapshot))
        if self._page is not None and (found := self._page.answer(path)) is not None:
            return HTTPStatus.OK, *found
        known = f"{'' if self._page is None else '/ '}/healthz /readyz /startupz /metrics {ROOT}\n"
        return HTTPStatus.NOT_FOUND, known.encode(), TEXT

    def _dead(self, snapshot: Snapshot) -> str | None:
        return liveness(snapshot, self._clock(), self._limits)

    @cached_property
    def _metrics(self) -> MetricsPage:
        from worker.telemetry.metrics.page import MetricsPage  # noqa: PLC0415  # imported by the first scrape: see there

        return MetricsPage(self._latest, self._clock)


def _verdict(wrong: str | None) -> Answer:
    if wrong is None:
        return HTTPStatus.OK, b"ok\n", TEXT
    return HTTPStatus.SERVICE_UNAVAILABLE, f"{wrong}\n".encode(), TEXT


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 2 * MOST_CONNECTIONS  # with 5, as in the base class, some of a burst wait for a second
    pages: Pages

    def __init__(self, address: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._since: dict[socket.socket, float] = {}  # connections, the oldest first
        super().__init__((address, port), _RequestHandler)

    def server_bind(self) -> None:
        # HTTPServer's own asks the name service for our full name, and a slow one would hold up the start.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle of its answer is not worth a line."""

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
        """Called ten times a second, by the server's own thread."""
        overdue = time.monotonic() - CONNECTION_TIMEOUT
        for request in [request for request, since in self._since.copy().items() if since < overdue]:
            self._hang_up(request)

    def _hang_up(self, request: socket.socket) -> None:
        """Its thread finds the connection at its end, and closes it."""
        self._since.pop(request, None)
        with suppress(OSError):  # it was closed just now
            request.shutdown(socket.SHUT_RDWR)


class _RequestHandler(BaseHTTPRequestHandler):
    timeout = READ_TIMEOUT
    wbufsize = -1  # head and body in one send: each is a wait for the interpreter beside a busy loop
    server: _Server

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        status, body, content_type = self.server.pages.answer(self.path, self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def version_string(self) -> str:
        return "inference-worker"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
        """Nothing per request: probes come every few seconds."""
