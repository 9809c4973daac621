"""One publication: requests handed over, acknowledged, and, if answers are waited for, answered.

One thread hands over what is due, hears what the broker acknowledged, and reads answers in between. With a rate it is
an open loop: a request leaves when it is due, however late the answers are. A request is known by its place in Kafka,
which its answer carries as `source`.
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
from worker.signals import StopSignals
from worker.terminal.terminal import progress
from worker.tools.consume.reading import headers_of
from worker.tools.kafka.publisher import Publisher
from worker.tools.kafka.reader import Reader
from worker.tools.publish.requests import Publishable

_PERCENTILES = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
# Handed over in a row before the broker and the answers are heard: a millisecond or two of work.
_BURST = 256
# The longest wait for anything before a signal is noticed, and the shortest that a client can wait, seconds.
_GLANCE, _TICK = 0.05, 0.001


class AwaitedAnswers:
    """Owns the places and instants of one run. Pure: the instants are passed in, seconds.

    An answer may be read before the broker's acknowledgement of its request, and others' answers are among them. So
    every answer is kept by its place, and counts once a request of this run lies there.
    """

    def __init__(self) -> None:
        self.heard = 0
        self._published_at: dict[str, float] = {}
        self._answers = defaultdict[str, list[tuple[float, str]]](list)  # when each came, and its error's code

    def placed(self, published_at: float, place: str | None) -> None:
        """A request lies there; None: it was refused."""
        if place is not None:
            self._published_at[place] = published_at
            self.heard += place in self._answers

    def hear(self, record: Record, now: float) -> bool:
        """An answer was read. Whether it is the first to a request of this run."""
        headers = headers_of(record.headers)
        place = headers.get("source", b"").decode(errors="replace")
        is_ok = headers.get("status") == b"ok"
        code = "" if is_ok else headers.get("error-code", b"unknown").decode(errors="backslashreplace")
        self._answers[place].append((now, code))
        is_first = place in self._published_at and len(self._answers[place]) == 1
        self.heard += is_first
        return is_first

    def summary(self) -> dict[str, Any]:
        """What became of the requests: results, errors by code, answers that did not come, and that came again.

        A latency is from publication until the answer was read.
        """
        heard = {place: answers for place, answers in self._answers.items() if place in self._published_at}
        codes = Counter(answers[0][1] for answers in heard.values())
        milliseconds = [(answers[0][0] - self._published_at[place]) * 1000 for place, answers in heard.items()]
        return {
            "answers": {
                "ok": codes[""],
                "errors": {code: count for code, count in codes.most_common() if code},
                "missing": len(self._published_at) - self.heard,
                "repeated": sum(len(answers) - 1 for answers in heard.values()),
            },
            "latency_ms": {
                name: round(float(np.percentile(milliseconds, at)), 3) for name, at in _PERCENTILES.items() if heard
            },
        }


class Publication:
    """Used once. Owns the counts and the clock of a run; neither the publisher nor the reader.

    `key` is for requests without one, `{n}` in it is the request's number; `rate` in requests per second.
    """

    def __init__(
        self, publisher: Publisher, reader: Reader | None, signals: StopSignals, key: str | None, rate: float | None
    ) -> None:
        self._publisher, self._reader, self._signals = publisher, reader, signals
        self._key, self._interval = key, 1 / rate if rate else 0.0
        self._awaited = AwaitedAnswers()
        self.handed_over = 0
        self.odd: BadConfiguration | None = None  # what the source cannot be read past
        self.is_whole = False  # every request of the source was handed over
        self._seconds = 0.0
        self._began = time.monotonic()
        self._show: Callable[[], None] = lambda: None

    def summary(self) -> dict[str, Any]:
        """What became of the requests. `unknown`: neither acknowledged nor refused."""
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
        """Hand over and hear of all; a signal ends it sooner, a second one at once. Raises `KafkaFatal`."""
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
        """For the answers to what was published, until none comes for so many seconds, or a signal does."""
        deadline = time.monotonic() + patience
        with progress("answers", self._publisher.acknowledged) as show:
            self._show = lambda: show(self._awaited.heard)
            while self._awaited.heard < self._publisher.acknowledged and not self._signals.stop_asked:
                if self._serve(_GLANCE):
                    deadline = time.monotonic() + patience
                if time.monotonic() > deadline:
                    return

    def _hand_over(self, requests: Iterable[Publishable | None]) -> bool:
        """Whether that was all."""
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
        told = None if self._reader is None else partial(self._awaited.placed, time.monotonic())
        while not self._publisher.publish(value, key, headers, told) and not self._signals.hurry_asked:
            self._publisher.poll(_GLANCE)
            self._serve(0.0)

    def _serve(self, timeout: float) -> int:
        """Hear what has come, waiting at most so long for it. Returns how many requests got their answer."""
        self._show()
        if self._reader is None:
            self._publisher.poll(timeout)
            return 0
        self._publisher.poll()
        records, now = self._reader.read(timeout), time.monotonic()
        return sum(self._awaited.hear(record, now) for record in records)
