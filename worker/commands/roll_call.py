"""Which answers belong to what was just published, and how long each took.

Every request is called by a name that its answer carries as `request-id`: its own, or one of this run. Names of this
run end in the request's number, so a million of them are three flat arrays. Pure: the instants are passed in, seconds.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from worker.codecs.reading import headers_of
from worker.core.records import Record

PERCENTILES = (50, 95, 99)


class Answered(NamedTuple):
    """What became of the requests: results, errors by code, answers that did not come, and that came again.

    `latency_ms`: p50, p95, p99 and max over the answers, from the request's publication until its answer was read;
    empty without any answer.
    """

    ok: int
    errors: Mapping[str, int]
    missing: int
    repeated: int
    latency_ms: Mapping[str, float]

    @property
    def failed(self) -> int:
        """Requests that got an error."""
        return sum(self.errors.values())


class RollCall:
    """Owns the names and instants of one run. `run` is a word that no other run has."""

    def __init__(self, run: str) -> None:
        self._prefix = f"{run}-".encode()
        self._called_at = array("d")
        self._is_answered = bytearray()
        self._latencies = array("d")
        self._codes: Counter[str] = Counter()
        self._repeated = 0
        # Only of requests with names of their own, of which one may stand for several: those that wait, oldest first,
        # and the requests, by their place in Kafka, whose answers came.
        self._waiting: defaultdict[bytes, deque[int]] = defaultdict(deque)
        self._sources: set[bytes] = set()

    def call(self, name: bytes | None, now: float) -> bytes:
        """The name of the next request, which is published now; `name` is its own."""
        number = len(self._called_at)
        self._called_at.append(now)
        self._is_answered.append(0)
        if name is None:
            return b"%b%d" % (self._prefix, number)
        self._waiting[name].append(number)
        return name

    def hear(self, record: Record, now: float) -> bool:
        """An answer was read. Whether it belongs to a request that waited for it."""
        headers = headers_of(record.headers)
        name = headers.get("request-id", b"")
        number = self._own(name, headers) if name in self._waiting else self._number(name)
        if number is None:
            return False
        self._is_answered[number] = 1
        self._latencies.append(now - self._called_at[number])
        is_ok = headers.get("status") == b"ok"
        self._codes["" if is_ok else headers.get("error-code", b"unknown").decode(errors="backslashreplace")] += 1
        return True

    @property
    def called(self) -> int:
        return len(self._called_at)

    @property
    def heard(self) -> int:
        """Requests that have their answer."""
        return len(self._latencies)

    def answered(self, published: int) -> Answered:
        """How it stands now, with so many requests of which an answer is due."""
        errors = {code: count for code, count in self._codes.most_common() if code}
        return Answered(self._codes[""], errors, published - self.heard, self._repeated, self._percentiles())

    def _number(self, name: bytes) -> int | None:
        """The number in a name of this run, unless it is answered already."""
        digits = name[len(self._prefix) :]
        if not name.startswith(self._prefix) or not digits.isdigit() or int(digits) >= self.called:
            return None
        number = int(digits)
        if self._is_answered[number]:
            self._repeated += 1
            return None
        return number

    def _own(self, name: bytes, headers: Mapping[str, bytes]) -> int | None:
        source = headers.get("source", b"")
        if source in self._sources or not self._waiting[name]:
            self._repeated += 1
            return None
        self._sources.add(source)
        return self._waiting[name].popleft()

    def _percentiles(self) -> dict[str, float]:
        if not self._latencies:
            return {}
        milliseconds = np.frombuffer(self._latencies) * 1000
        found = {f"p{percent}": float(np.percentile(milliseconds, percent)) for percent in PERCENTILES}
        return {**found, "max": float(milliseconds.max())}
