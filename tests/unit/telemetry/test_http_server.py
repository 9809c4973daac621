"""The most that a client can make the HTTP port cost."""

from __future__ import annotations

from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

from worker.telemetry import http_server
from worker.telemetry.http_server import LONGEST_HEAD, TEXT


class Dripping:
    """A connection that gives a byte at a time."""

    def __init__(self, head: bytes) -> None:
        self._left = list(head)
        self.answer = b""

    def recv(self, most: int) -> bytes:
        return bytes([self._left.pop(0)])

    def settimeout(self, seconds: float) -> None: ...

    def sendall(self, answer: bytes) -> None:
        self.answer += answer


class Looks:
    """The pattern that it stands for, and how many bytes it has looked at."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern
        self.taken = 0

    def search(self, head: bytes, at: int = 0) -> Any:
        self.taken += len(head) - at
        return self._pattern.search(head, at)


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\n\n"])
def test_each_byte_of_a_head_is_looked_at_a_few_times(end: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends a byte at a time had all of it looked at again for each: 3 s of CPU for 16 KiB."""
    looks = Looks(http_server._END_OF_HEAD)
    monkeypatch.setattr(http_server, "_END_OF_HEAD", looks)
    head = b"GET / HTTP/1.1\r\na: " + b"\n\r\r" * 5000 + end
    connection: Any = Dripping(head)
    server: Any = SimpleNamespace(answer=lambda *_: (HTTPStatus.OK, b"ok\n", TEXT))

    http_server._Connection(connection, ("127.0.0.1", 1), server)

    assert connection.answer.endswith(b"\r\n\r\nok\n")
    assert len(head) < LONGEST_HEAD
    assert looks.taken <= 4 * len(head)
