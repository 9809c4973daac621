"""Publishes the requests of a run at a steady rate, and enters each acknowledgement in the books.

Owns a producer and a thread. Waits for an absent broker for as long as it takes.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer

from tests.faults.books import Books, Source
from tests.faults.checker import Topics
from tests.faults.history import History
from tests.faults.requests import ROWS, Form, request

TICK = 0.01  # the pace's unit, seconds


class Load:
    """Sends `rate` requests a second from now until `stop`, or until `most` are sent."""

    def __init__(
        self,
        servers: str,
        topics: Topics,
        rate: float,
        books: Books,
        history: History,
        most: int | None = None,
        form: Form = ROWS,
    ) -> None:
        self.sent = 0
        self._topics = topics
        self._rate = rate
        self._most = sys.maxsize if most is None else most
        self._books = books
        self._form = form
        self._history = history
        self._failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "partitioner": "murmur2_random",
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )
        self._paused_at: float | None = None
        self._missed = 0.0  # seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Send nothing more until `resume`."""
        self._paused_at = time.monotonic()

    def resume(self) -> None:
        """Go on, without catching up."""
        assert self._paused_at is not None
        self._missed += time.monotonic() - self._paused_at
        self._paused_at = None

    def stop(self, timeout: float) -> None:
        """Stop, and wait until all sent requests are acknowledged. Raises `RuntimeError` when that takes too long."""
        self._end()
        left = self._producer.flush(timeout)
        if left or self._failures:
            raise RuntimeError(f"{left} requests are not acknowledged; refused: {self._failures[:3]}")

    @property
    def is_over(self) -> bool:
        """True if all are sent."""
        return self.sent == self._most

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(TICK):
            self._producer.poll(0)
            if self._paused_at is not None:
                continue
            due = min(self._most, int((time.monotonic() - began - self._missed) * self._rate))
            while self.sent < due and self._send(self.sent):
                self.sent += 1

    def _send(self, number: int) -> bool:
        asked = request(number, self._topics.partitions, self._form)
        topic, partition = self._topics.taking(asked)
        headers: list[Any] = list(asked.headers)
        try:
            self._producer.produce(
                topic,
                asked.value,
                asked.key,
                partition,
                on_delivery=lambda error, message: self._reported(number, error, message),
                headers=headers,
            )
        except BufferError:  # the broker is away: try again after a tick
            return False
        return True

    def _reported(self, number: int, error: KafkaError | None, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error is not None:
            self._failures.append(f"request {number}: {error}")
            return
        # A broker that had it already, and whose first acknowledgement was lost, does not tell its place.
        source = None
        if topic is not None and partition is not None and offset is not None:
            source = Source(self._topics.firsts[topic] + partition, offset)
        self._books.published(source, number)
        self._history.write("published", number=number, at=source and str(source))

    def _end(self) -> None:
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
