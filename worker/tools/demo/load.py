"""One load: so many images sent at a steady rate, whatever comes back, and what came back.

The publisher is an open loop: it sends when a request is due, not when an answer has come, and latency counts from the
instant a request was due. A worker that falls behind cannot slow down its own measurement.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.core.failures import DeadlineMissed, Stop
from worker.core.records import Record
from worker.tools.demo.digits import CLASSES, Images
from worker.tools.kafka.publisher import Publisher
from worker.tools.kafka.reader import Reader

# Nothing came for so long: it hangs. However slow a machine is, something comes now and then.
_PATIENCE_S = 60.0
# The publisher wakes this often and sends all that is due.
_TICK_S = 0.001


class Answer(NamedTuple):
    """What the worker said to one image, for people to look at."""

    image: NDArray[np.float32]
    digit: int
    confidence: float


class Seen(NamedTuple):
    """How far a load is."""

    sent: int
    answered: int
    latest: Sequence[Answer]


class Tally(NamedTuple):
    """What became of a load. Latencies in seconds, one per answered request, from the instant it was due."""

    requests: int
    answers: int
    repeats: int
    errors: int
    right: int
    seconds: float
    latencies: NDArray[np.float64]

    @property
    def rate(self) -> float:
        """Answers per second, from the first request due to the last answer."""
        return self.answers / self.seconds


class Load:
    """Sends `requests` images at `rate` per second and collects the answers. Used once, by one thread."""

    def __init__(self, images: Images, requests: int, rate: float) -> None:
        self._images = images
        self._rows = [row.astype("<f4").tobytes() for row in images.pixels]
        self._offsets = np.arange(requests) / rate
        self._due = np.zeros(requests)
        self._received = np.full(requests, np.nan)
        self._is_right = np.zeros(requests, dtype=bool)
        self._answered = 0
        self._repeats = 0
        self._errors = 0
        self._failure: Stop | None = None
        self._sent = 0

    def run(self, publisher: Publisher, reader: Reader) -> Iterator[Seen]:
        """Yields at every arrival, and at least ten times a second, until each request has its answer.

        Raises `Stop` when the broker refuses a request, or when nothing more comes.
        """
        requests = len(self._offsets)
        self._due = time.monotonic() + self._offsets
        deadline = time.monotonic() + _PATIENCE_S
        sending = threading.Thread(target=self._send, args=(publisher,), daemon=True)
        sending.start()
        while self._answered < requests:
            records = reader.read(0.1)
            if records:
                deadline = time.monotonic() + _PATIENCE_S
            yield Seen(self._sent, self._answered, self._take(records))
            self._check(deadline)
        sending.join()
        yield Seen(requests, requests, ())
        self._check(np.inf)

    def _check(self, deadline: float) -> None:
        if self._failure is not None:
            raise self._failure
        if time.monotonic() > deadline:
            told = f"{self._answered} of {len(self._due)} answers came"
            raise DeadlineMissed(f"{told}, and none for {_PATIENCE_S:g} s")

    def _send(self, publisher: Publisher) -> None:
        try:
            while self._sent < len(self._due):
                due = int(np.searchsorted(self._due, time.monotonic(), side="right"))
                for number in range(self._sent, due):
                    self._publish(publisher, number)
                self._sent = max(self._sent, due)
                publisher.poll()
                time.sleep(_TICK_S)
            if waiting := publisher.flush(_PATIENCE_S):
                raise DeadlineMissed(f"{waiting} requests were not acknowledged within {_PATIENCE_S:g} s")
        except Stop as stop:
            self._failure = stop

    def _publish(self, publisher: Publisher, number: int) -> None:
        row = number % len(self._rows)
        headers = (("content-type", b"application/octet-stream"), ("request-id", b"%d" % number))
        while not publisher.publish(self._rows[row], b"image-%d" % row, headers):
            publisher.poll(_TICK_S)

    def _take(self, records: Sequence[Record]) -> Sequence[Answer]:
        now = time.monotonic()
        answers = [self._judged(record, now) for record in records]
        return [answer for answer in answers if answer is not None]

    def _judged(self, record: Record, now: float) -> Answer | None:
        headers = dict(record.headers)
        number = int(headers["request-id"] or b"")
        if not np.isnan(self._received[number]):
            self._repeats += 1
            return None
        self._received[number] = now
        self._answered += 1
        if headers["status"] != b"ok":
            self._errors += 1
            return None
        probabilities = np.frombuffer(record.value or b"", "<f4", count=CLASSES)
        digit, row = int(probabilities.argmax()), number % len(self._rows)
        self._is_right[number] = digit == self._images.labels[row]
        return Answer(self._images.pixels[row], digit, float(probabilities[digit]))

    def tally(self) -> Tally:
        """The result, after `run`."""
        return Tally(
            requests=len(self._due),
            answers=self._answered,
            repeats=self._repeats,
            errors=self._errors,
            right=int(self._is_right.sum()),
            seconds=float(self._received.max() - self._due[0]),
            latencies=self._received - self._due,
        )
