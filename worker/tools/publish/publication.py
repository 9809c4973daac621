"""One publication: requests handed over, acknowledged, and, if answers are waited for, answered.

One thread hands over what is due, hears what the broker acknowledged, and reads answers in between. With a rate it is
an open loop: a request leaves when it is due, however late the answers are. Owns the counts and the clock of a run;
neither the publisher nor the reader.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from worker.codecs.request_headers import REQUEST_ID
from worker.core.failures import BadConfiguration
from worker.signals import StopSignals
from worker.terminal.terminal import progress
from worker.tools.kafka.publisher import Publisher
from worker.tools.kafka.reader import Reader
from worker.tools.publish.awaited_answers import Answered, AwaitedAnswers
from worker.tools.publish.lines import Publishable
from worker.tools.publish.requests import Requests

# Handed over in a row before the broker and the answers are heard: a millisecond or two of work.
_BURST = 256
# The longest wait for anything before a signal is noticed, and the shortest that a client can wait, seconds.
_GLANCE, _TICK = 0.05, 0.001


class Published(NamedTuple):
    """What became of the requests so far, in `seconds`. `unknown`: neither acknowledged nor refused."""

    handed_over: int
    acknowledged: int
    refused: int
    refusal: str | None
    seconds: float

    @property
    def unknown(self) -> int:
        return self.handed_over - self.acknowledged - self.refused

    @property
    def rate(self) -> float:
        return self.acknowledged / max(self.seconds, 1e-9)


class Publication:
    """Used once. `key` for requests without one, `{n}` in it is the request's number; `rate` in requests per second."""

    def __init__(
        self,
        publisher: Publisher,
        reader: Reader | None,
        awaited: AwaitedAnswers,
        signals: StopSignals,
        *,
        key: str | None,
        rate: float | None,
    ) -> None:
        self._publisher = publisher
        self._reader = reader
        self._awaited = awaited
        self._signals = signals
        self._key = key
        self._interval = 1 / rate if rate else 0.0
        self._began = time.monotonic()
        self._seconds = 0.0
        self._show: Callable[[], None] = lambda: None
        self.odd: BadConfiguration | None = None  # what the source cannot be read past
        self.is_whole = False  # every request of the source was handed over

    def run(self, requests: Requests) -> None:
        """Hand over and hear of all; a signal ends it sooner, a second one at once. Raises `KafkaFatal`."""
        self._began = time.monotonic()
        try:
            with progress("publishing", requests.total) as show:
                self._show = lambda: show(self._publisher.acknowledged)
                try:
                    self.is_whole = self._hand_over(iter(requests))
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

    @property
    def published(self) -> Published:
        publisher = self._publisher
        return Published(
            self._awaited.expected, publisher.acknowledged, publisher.refused, publisher.refusal, self._seconds
        )

    @property
    def is_stop_asked(self) -> bool:
        """A signal came, and what is missing was not waited for to the end."""
        return self._signals.stop_asked

    @property
    def answered(self) -> Answered:
        return self._awaited.answered(self._publisher.acknowledged)

    def _hand_over(self, requests: Iterator[Publishable | None]) -> bool:
        """Whether that was all."""
        for request in requests:
            if request is not None:
                self._wait_until(self._began + self._awaited.expected * self._interval)
                self._send(request)
            if request is None or self._awaited.expected % _BURST == 0:
                self._serve(0.0)
            if self._signals.stop_asked:
                return False
        return True

    def _wait_until(self, due: float) -> None:
        while (left := due - time.monotonic()) > 0 and not self._signals.stop_asked:
            self._serve(min(max(left, _TICK), _GLANCE))

    def _send(self, request: Publishable) -> None:
        value, key, headers, own = request
        if key is None and self._key is not None:
            key = self._key.replace("{n}", str(self._awaited.expected)).encode(errors="surrogateescape")
        # Only requests with names of their own need to be known by their place.
        told = None if own is None or self._reader is None else partial(self._awaited.placed, self._awaited.expected)
        name = self._awaited.expect(own, time.monotonic())
        if own is None:
            headers = (*headers, (REQUEST_ID, name))  # of one that comes twice the last counts
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
        records = self._reader.read(timeout)
        now = time.monotonic()
        return sum(self._awaited.hear(record, now) for record in records)
