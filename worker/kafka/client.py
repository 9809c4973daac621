"""The other side of the contract: a publisher of requests and a reader of answers, for the demo.

Both are plain clients outside any consumer group. Neither commits, retries by itself or knows what it carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from worker.core.failures import KafkaFatal
from worker.core.records import Headers, Partition, Record

# The most a read takes: enough to keep up with any publisher here, small enough to come back soon.
_READ_AT_MOST = 1000
# What waits for an answer's arrival polls this often at the broker; a mock broker does not wake a waiting fetch.
_FETCH_WAIT_MS = 2
# Nothing short of critical: what else librdkafka says would run through the picture on the screen.
_LOG_LEVEL = 2


class Publisher:
    """Sends requests to one topic. One thread uses it. `acknowledged` counts what the broker has confirmed."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._refused: str | None = None
        self.acknowledged = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "linger.ms": 1,
                "log_level": _LOG_LEVEL,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 1_000_000,
            }
        )

    def publish(self, value: bytes, key: bytes, headers: Headers) -> None:
        """Hand over one request; it leaves within about a millisecond. Raises `KafkaFatal` once one was refused."""
        self._producer.produce(self._topic, value, key, headers=list(headers), on_delivery=self._delivered)

    def poll(self) -> None:
        """Take in acknowledgements. Raises `KafkaFatal` once a request was refused."""
        self._producer.poll(0)
        self._check()

    def close(self, timeout: float) -> None:
        """Wait for the last acknowledgements. Raises `KafkaFatal` when they do not come within `timeout` seconds."""
        waiting = self._producer.flush(timeout)
        self._check()
        if waiting:
            raise KafkaFatal(f"{waiting} requests to {self._topic} were not acknowledged within {timeout:g} s")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._refused = self._refused or error.str()

    def _check(self) -> None:
        if self._refused is not None:
            raise KafkaFatal(f"a request to {self._topic} was refused: {self._refused}")


class Reader:
    """Reads one topic from its beginning. The partitions are named: a fresh topic may not show them yet."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "reader",  # the client wants one; nothing is ever committed to it
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": _LOG_LEVEL,
                "fetch.wait.max.ms": _FETCH_WAIT_MS,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def read(self, timeout: float) -> Sequence[Record]:
        """What has arrived, waiting at most `timeout` seconds for the first. Raises `KafkaFatal` for a lost topic."""
        first = self._consumer.poll(timeout)
        if first is None:
            return ()
        try:
            return [self._record(message) for message in (first, *self._consumer.consume(_READ_AT_MOST, 0))]
        except KafkaException as error:
            raise KafkaFatal(f"{self._topic} cannot be read: {error}") from error

    def _record(self, message: Message) -> Record:
        error = message.error()
        if error is not None:
            raise KafkaFatal(f"{self._topic} cannot be read: {error.str()}")
        return Record(
            Partition(self._topic, message.partition() or 0),
            message.offset() or 0,
            message.key(),
            message.value(),
            cast("Headers", message.headers() or ()),
            message.timestamp()[1],
        )

    def close(self) -> None:
        self._consumer.close()
