"""Answers as JSON lines: the value that the worker would send, and for an error what only its headers would say."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from worker.core.failures import Incomplete
from worker.core.records import Message, Outcome
from worker.tools.score.tally import Tally

BLOCK = 64 * 1024  # bytes that wait for company; a pipe holds as much


class Encoder(Protocol):
    """Outcomes to messages; one each, where there are no dead letters."""

    def encode(self, outcome: Outcome) -> Sequence[Message]: ...


class LineWriter:
    """A `Writer`. Owns the lines that are not written yet, not the file.

    Written without Python's own buffer, which would write again, when it is closed, what a full disk did not take.
    """

    def __init__(self, descriptor: int, name: str, encoder: Encoder, unit: str, tally: Tally) -> None:
        """`unit` is what the numbers count: `line` or `row`."""
        self._descriptor = descriptor
        self._name = name
        self._encoder = encoder
        self._unit = unit.encode()
        self._tally = tally
        self._lines: list[bytes] = []
        self._size = 0

    def write(self, number: int, outcome: Outcome) -> None:
        """One line. Raises `Incomplete` when the disk is full or the output is read no more."""
        (message,) = self._encoder.encode(outcome)
        line = message.value or b""
        headers = dict(message.headers)
        if headers["status"] == b"error":
            line = self._refuse(line, headers["error-code"] or b"", number)
        self._lines.append(line)
        self._size += len(line)
        self._tally.outcomes += 1
        if self._size >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Write what waits. Raises `Incomplete` as `write` does; what waited is lost then."""
        lines, self._lines, self._size = self._lines, [], 0
        if not lines:
            return
        view = memoryview(b"\n".join([*lines, b""]))
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise Incomplete(f"{self._name}: cannot be written to: {error.strerror}") from error

    def _refuse(self, line: bytes, code: bytes, number: int) -> bytes:
        """The error object with its code and the number of the line or row that it answers."""
        self._tally.refuse(code.decode(), number)
        return b'%b,"code":"%b","%b":%d}' % (line[:-1], code, self._unit, number)
