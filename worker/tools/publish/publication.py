"""One publication: requests are handed over, acknowledged, and, if the command waits, answered.

One thread hands over the requests that are due, takes in the broker's acknowledgements, and reads answers in between.
With a rate it is an open loop: a request is sent when it is due, however late the answers are. A request's place in
Kafka identifies it, and its answer carries that as `source`.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from worker.core.failures import BadConfiguration
from worker.core.records import Record
from worker.kafka.reader import Reader
from worker.signals import StopSignals
from worker.terminal.terminal import progress
from worker.tools.consume.reading import headers_of
from worker.tools.kafka.publisher import Publisher
from worker.tools.publish.requests import Publishable

_PERCENTILES = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
# Requests handed over before acknowledgements and answers are taken in: a millisecond or two of work.
_BURST = 256
# Seconds of the longest wait before a signal is noticed, and of the shortest that a client can wait.
_GLANCE, _TICK = 0.05, 0.001


class AwaitedAnswers:
    """Matches answers with requests. Owns the places and instants of one publication. Pure: instants are passed in, s.

    An answer may be read before the broker acknowledges its request, and some answers belong to other publishers. So
    every answer is kept by its place, and it counts when a request of this publication has that place.
    """

    def __init__(self) -> None:
        self.heard = 0
        self.passed_over = 0  # published ones that get no answer
        self._published_at: dict[str, float] = {}
        self._answers = defaultdict[str, list[tuple[float, str]]](list)  # each answer's instant and error code

    @property
    def missing(self) -> int:
        """The number of answers that have not come."""
        return len(self._published_at) - self.heard

    def placed(self, published_at: float | None, place: str | None) -> None:
        """Note the place of a request; None if it was refused. Without an instant it gets no answer."""
        if place is not None and published_at is None:
            self.passed_over += 1
        elif place is not None and published_at is not None:
            self._published_at[place] = published_at
            self.heard += place in self._answers

    def hear(self, record: Record, now: float) -> bool:
        """Note an answer that was read. Returns True if it is the first one to a request of this publication."""
        headers = headers_of(record.headers)
        place = headers.get("source", b"").decode(errors="replace")
        is_ok = headers.get("status") == b"ok"
        code = "" if is_ok else headers.get("error-code", b"unknown").decode(errors="backslashreplace")
        self._answers[place].append((now, code))
        is_first = place in self._published_at and len(self._answers[place]) == 1
        self.heard += is_first
        return is_first

    def summary(self) -> dict[str, Any]:
        """Counts results, errors by code, missing answers and repeated ones, and the requests that get none.

        A latency is the time from publication until the answer was read.
        """
        heard = {place: answers for place, answers in self._answers.items() if place in self._published_at}
        codes = Counter(answers[0][1] for answers in heard.values())
        milliseconds = [(answers[0][0] - self._published_at[place]) * 1000 for place, answers in heard.items()]
        return {
            "answers": {
                "ok": codes[""],
                "errors": {code: count for code, count in codes.most_common() if code},
                "missing": self.missing,
                "repeated": sum(len(answers) - 1 for answers in heard.values()),
                "passed_over": self.passed_over,
            },
            "latency_ms": {
                name: round(float(np.percentile(milliseconds, at)), 3) for name, at in _PERCENTILES.items() if heard
            },
        }


class Publication:
    """Publishes requests, once. Owns the counts and the clock, but neither the publisher nor the reader.

    `key` is for requests without one, and `{n}` in it is the request's number. `rate` is in requests per second.
    `passed_over` tells the requests that get no answer.
    """

    def __init__(
        self,
        publisher: Publisher,
        reader: Reader | None,
        signals: StopSignals,
        key: str | None,
        rate: float | None,
        passed_over: Callable[[Publishable], bool],
    ) -> None:
        self._publisher, self._reader, self._signals = publisher, reader, signals
        self._key, self._interval = key, 1 / rate if rate else 0.0
        self._is_passed_over = passed_over
        self._awaited = AwaitedAnswers()
        self.handed_over = 0
        self.odd: BadConfiguration | None = None  # the line at which reading the source had to stop
        self.is_whole = False  # every request of the source was handed over
        self._seconds = 0.0
        self._began = time.monotonic()
        self._show: Callable[[], None] = lambda: None

    def summary(self) -> dict[str, Any]:
        """Counts the requests by outcome. `unknown`: neither acknowledged nor refused."""
        published, refused = self._publisher.acknowledged, self._publisher.refused
        return {
            "published": published,
            "refused": refused,
            "unknown": self.handed_over - published - refused,
            "seconds": round(self._seconds, 3),
            "requests_per_second": round(published / max(self._seconds, 1e-9), 1),
            **({} if self._reader is None else self._awaited.summary()),
        }

    def run(self, requests: Iterable[Publishable | None], total: int | None) -> None:
        """Hand over all, and wait for the broker. A signal ends it early, a second at once. Raises `KafkaFatal`."""
        self._began = time.monotonic()
        try:
            with progress("publishing", total) as show:
                self._show = lambda: show(self._publisher.acknowledged)
                try:
                    self.is_whole = self._hand_over(requests)
                except BadConfiguration as odd:
                    self.odd = odd
                while self._publisher.waiting and not self._signals.hurry_asked:
                    self._serve(_GLANCE)
        finally:
            self._seconds = time.monotonic() - self._began
            self._publisher.give_up()

    def wait(self, patience: float) -> None:
        """Wait for the answers, until all came, none comes for `patience` seconds, or a signal comes."""
        deadline = time.monotonic() + patience
        with progress("answers", self._awaited.heard + self._awaited.missing) as show:
            self._show = lambda: show(self._awaited.heard)
            while self._awaited.missing and not self._signals.stop_asked:
                if self._serve(_GLANCE):
                    deadline = time.monotonic() + patience
                if time.monotonic() > deadline:
                    return

    def _hand_over(self, requests: Iterable[Publishable | None]) -> bool:
        """Hand over the requests. Returns False if a signal ended it before the last one."""
        for request in requests:
            if request is not None:
                self._wait_until(self._began + self.handed_over * self._interval)
                self._send(request)
            if request is None or self.handed_over % _BURST == 0:
                self._serve(0.0)
            if self._signals.stop_asked:
                return False
        return True

    def _wait_until(self, due: float) -> None:
        while (left := due - time.monotonic()) > 0 and not self._signals.stop_asked:
            self._serve(min(max(left, _TICK), _GLANCE))

    def _send(self, request: Publishable) -> None:
        value, key, headers = request
        if key is None and self._key is not None:
            key = self._key.replace("{n}", str(self.handed_over)).encode(errors="surrogateescape")
        self.handed_over += 1
        told = None
        if self._reader is not None:
            is_silent = self._is_passed_over(Publishable(value, key, headers))
            told = partial(self._awaited.placed, None if is_silent else time.monotonic())
        while not self._publisher.publish(value, key, headers, told) and not self._signals.hurry_asked:
            self._publisher.poll(_GLANCE)
            self._serve(0.0)

    def _serve(self, timeout: float) -> int:
        """Take in acknowledgements and answers, waiting at most `timeout`. Returns how many requests got an answer."""
        self._show()
        if self._reader is None:
            self._publisher.poll(timeout)
            return 0
        self._publisher.poll()
        records, now = self._reader.read(timeout), time.monotonic()
        return sum(self._awaited.hear(record, now) for record in records)
