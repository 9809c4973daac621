"""Which answers belong to what was just published, and how long each took.

Every request has a name that its answer carries as `request-id`: its own, or one of this run. Names of this
run end in the request's number, so a million of them are three flat arrays. A name of its own may stand for several
requests, of other runs too: its answer is known by the request's place, which the answer carries as `source`. Pure: the
instants are passed in, seconds.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from worker.core.foreign_values import whole_number
from worker.core.records import Record
from worker.tools.consume.reading import headers_of

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
        return sum(self.errors.values())


class AwaitedAnswers:
    """Owns the names and instants of one run. `run` is a word that no other run has."""

    def __init__(self, run: str) -> None:
        self._prefix = f"{run}-".encode()
        self._published_at = array("d")
        self._is_answered = bytearray()
        self._latencies = array("d")
        self._codes: Counter[str] = Counter()
        self._repeated = 0
        # Only of requests with names of their own: these, the requests' numbers by place, how many have no place yet,
        # and answers to such names from places that are not known yet, as the acknowledgement may come later.
        self._names: set[bytes] = set()
        self._numbers: dict[bytes, int] = {}
        self._unplaced = 0
        self._early: defaultdict[bytes, list[tuple[Mapping[str, bytes], float]]] = defaultdict(list)

    def expect(self, name: bytes | None, now: float) -> bytes:
        """The name of the next request, which is published now; `name` is its own, and then `placed` will be called."""
        number = len(self._published_at)
        self._published_at.append(now)
        self._is_answered.append(0)
        if name is None:
            return b"%b%d" % (self._prefix, number)
        self._names.add(name)
        self._unplaced += 1
        return name

    def placed(self, number: int, source: str | None) -> None:
        """The request of that number (from 0) and a name of its own lies there; None: it was refused."""
        self._unplaced -= 1
        if source is not None:
            place = source.encode()
            self._numbers[place] = number
            for headers, now in self._early.pop(place, ()):
                self._answer(number, headers, now)
        if not self._unplaced:
            self._early.clear()  # they belong to others

    def hear(self, record: Record, now: float) -> bool:
        """An answer was read. Whether it belongs to a request that waited for it."""
        headers = headers_of(record.headers)
        name = headers.get("request-id", b"")
        number = self._own(headers, now) if name in self._names else self._number(name)
        return number is not None and self._answer(number, headers, now)

    @property
    def expected(self) -> int:
        return len(self._published_at)

    @property
    def heard(self) -> int:
        return len(self._latencies)

    def answered(self, published: int) -> Answered:
        """How it stands now, with so many requests of which an answer is due."""
        errors = {code: count for code, count in self._codes.most_common() if code}
        return Answered(self._codes[""], errors, published - self.heard, self._repeated, self._percentiles())

    def _number(self, name: bytes) -> int | None:
        number = whole_number(name[len(self._prefix) :]) if name.startswith(self._prefix) else None
        return None if number is None or number >= self.expected else number

    def _own(self, headers: Mapping[str, bytes], now: float) -> int | None:
        """The number of the request that lies where this answer's does; kept for later where that may yet be told."""
        source = headers.get("source", b"")
        number = self._numbers.get(source)
        if number is None and self._unplaced:
            self._early[source].append((headers, now))
        return number

    def _answer(self, number: int, headers: Mapping[str, bytes], now: float) -> bool:
        """Whether it is the first."""
        if self._is_answered[number]:
            self._repeated += 1
            return False
        self._is_answered[number] = 1
        self._latencies.append(now - self._published_at[number])
        is_ok = headers.get("status") == b"ok"
        self._codes["" if is_ok else headers.get("error-code", b"unknown").decode(errors="backslashreplace")] += 1
        return True

    def _percentiles(self) -> dict[str, float]:
        if not self._latencies:
            return {}
        milliseconds = np.frombuffer(self._latencies) * 1000
        found = {f"p{percent}": float(np.percentile(milliseconds, percent)) for percent in PERCENTILES}
        return {**found, "max": float(milliseconds.max())}
