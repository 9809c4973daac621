"""Sends requests and remembers the acknowledged ones with their positions: the worker owes each an answer.

Shares no code with `worker`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer

from tests.kafka.cluster import TIMEOUT, Cluster, Sent

TICK = 0.01  # the pace's unit, seconds


class Position(NamedTuple):
    """A request's position; as text it equals the `source` header of its answer."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


Acknowledged = dict[Position, Sent]
Make = Callable[[int], tuple[str, Sent]]  # number of the request → its topic and itself


class Publisher:
    """Owns a producer and the acknowledged requests. Waits for an absent broker for as long as it takes."""

    def __init__(self, cluster: Cluster) -> None:
        self.acknowledged: Acknowledged = {}
        self._failures: list[str] = []
        self._producer = Producer(
            {
                **cluster.login,
                "enable.idempotence": True,
                "linger.ms": 2,
                "partitioner": "murmur2_random",
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def send(self, topic: str, sent: Sent) -> None:
        """Send one request; a later call notes its acknowledgement."""
        report = self._reporter(topic, sent)
        while True:
            try:
                self._producer.produce(
                    topic, sent.value, sent.key, sent.partition, on_delivery=report, headers=list(sent.headers)
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                self._producer.poll(0)
                return

    def _reporter(self, topic: str, sent: Sent) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is not None or partition is None or offset is None:
                self._failures.append(str(error))
            else:
                self.acknowledged[Position(topic, partition, offset)] = sent

        return report

    def flush(self, timeout: float = TIMEOUT) -> Acknowledged:
        """Wait until all are acknowledged; fails the test if one is refused or not in time."""
        left = self._producer.flush(timeout)
        assert not self._failures, self._failures[:3]
        assert not left, f"{left} requests are not acknowledged after {timeout} s"
        return self.acknowledged


def publish(cluster: Cluster, topic: str, requests: Iterable[Sent]) -> Acknowledged:
    """Send requests, wait for the acknowledgements, and return their positions."""
    publisher = Publisher(cluster)
    for sent in requests:
        publisher.send(topic, sent)
    return publisher.flush()


class SteadyPublisher:
    """Sends `rate` requests per second from a thread of its own until stopped. `make(n)` makes the n-th."""

    def __init__(self, cluster: Cluster, make: Make, rate: float) -> None:
        self._publisher = Publisher(cluster)
        self._make = make
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    @property
    def acknowledged(self) -> Acknowledged:
        """The requests acknowledged so far; complete after `stop`."""
        return self._publisher.acknowledged

    def _run(self) -> None:
        began = time.monotonic()
        count = 0
        while not self._stop.wait(TICK):
            for number in range(count, int((time.monotonic() - began) * self._rate)):
                self._publisher.send(*self._make(number))
                count = number + 1

    def stop(self) -> Acknowledged:
        """Stop, and wait until all that was sent is acknowledged."""
        self._stop.set()
        self._thread.join(TIMEOUT)
        return self._publisher.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT)
