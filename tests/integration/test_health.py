"""The HTTP server over a real socket."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus

import pytest

from tests.unit.test_settings import LEAST
from worker.core.failures import BadConfiguration
from worker.settings import load
from worker.telemetry import HttpServer, Pages, WorkerEvents, http_server

PATIENCE = 60.0  # longer than any machine needs, seconds


@pytest.fixture
def events() -> WorkerEvents:
    return WorkerEvents(max_batch_size=8)


@pytest.fixture
def server(events: WorkerEvents) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, Pages(lambda: events.latest, load(None, LEAST)).answer)
    yield server
    server.close()


def ask(server: HttpServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_clients_that_never_finish_keep_no_probe_out(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number may drip: the oldest are closed when there are too many, and all after a while."""
    monkeypatch.setattr(http_server, "READ_TIMEOUT", PATIENCE)  # a silent client has another timeout
    before = threading.active_count()
    dripping = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3 * http_server.MOST_CONNECTIONS)]
    for connection in dripping:
        with suppress(OSError):  # it is closed already
            connection.sendall(b"GET /heal")

    assert ask(server, "/healthz") == (200, "ok\n")
    wait_until(lambda: threading.active_count() <= before + http_server.MOST_CONNECTIONS)

    monkeypatch.setattr(http_server, "CONNECTION_TIMEOUT", 0.1)
    wait_until(lambda: threading.active_count() <= before)
    for connection in dripping:
        connection.close()


def test_a_head_that_is_too_long_is_refused(server: HttpServer) -> None:
    """Its sender reads why. 64 such connections took 2.5 GB when each header could have 64 KiB."""
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n" + b"a: " + b"x" * (4 << 20))
            connection.shutdown(socket.SHUT_WR)

            answer = connection.makefile("rb").read()

        assert answer.startswith(b"HTTP/1.0 431 Request Header Fields Too Large\r\n")
        assert answer.endswith(b"\r\n\r\na request's head has more than 16384 bytes\n")


def test_a_client_that_does_not_read_its_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of its answer stays in memory only for a reader's timeout."""
    monkeypatch.setattr(http_server, "READ_TIMEOUT", 0.1)
    before = threading.active_count()
    large = bytes(64 << 20)
    server = HttpServer("127.0.0.1", 0, lambda *_: (HTTPStatus.OK, large, http_server.TEXT))
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert connection.recv(8) == b"HTTP/1.0"
            wait_until(lambda: threading.active_count() == before + 1)
    finally:
        server.close()


def test_a_head_of_any_size_below_that_is_read_in_whatever_pieces_it_comes(server: HttpServer) -> None:
    """Proxies add cookies and tokens; a line may end with a newline or with both characters."""
    for head in (b"GET /healthz HTTP/1.1\r\nCookie: " + b"x" * 16_000 + b"\r\n\r\n", b"GET /healthz HTTP/1.0\n\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in (head[:7], head[7:-1], head[-1:]):
                connection.sendall(piece)

            assert connection.makefile("rb").read().endswith(b"\r\n\r\nok\n")


@pytest.mark.parametrize("line", [b"GET /healthz", b"\x16\x03\x01", b"GET  HTTP/1.1", b"PRI * HTTP/2.0", b""])
def test_what_is_no_http_request_is_told_so(server: HttpServer, line: bytes) -> None:
    """Examples are a greeting of TLS or of another protocol."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(line + b"\r\n\r\n")

        assert connection.makefile("rb").read().startswith(b"HTTP/1.0 400 Bad Request\r\n")


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_metrics_are_served_and_other_paths_are_not(server: HttpServer) -> None:
    """HEAD works like GET without the body; other methods are refused."""
    status, page = ask(server, "/metrics")

    assert status == 200
    assert "inference_worker_records_taken_total 0.0" in page
    assert ask(server, "/metrics", "HEAD") == (200, "")
    assert ask(server, "/config")[0] == 404
    assert ask(server, "/metrics", "POST")[0] == 501


def test_every_answer_has_its_security_headers(server: HttpServer) -> None:
    """They forbid foreign content, frames, guessed types, caches and other sites' reading."""
    for path in ("/", "/status", "/metrics", "/config"):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("HEAD", path)
        headers = connection.getresponse().headers
        connection.close()

        assert headers["Content-Security-Policy"].startswith("default-src 'self'; ")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers.get_all("Content-Type") is not None


def test_a_port_that_is_taken_is_a_configuration_error(server: HttpServer) -> None:
    """The error is one line that names the settings."""
    with pytest.raises(BadConfiguration, match=r"cannot listen on 127\.0\.0\.1:\d+: .*WORKER_TELEMETRY__HTTP_PORT"):
        HttpServer("127.0.0.1", server.port, server.answer)
