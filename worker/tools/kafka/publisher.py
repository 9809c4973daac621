"""The producer of the commands and the demo: it sends records to one topic."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Report

from worker.core.failures import KafkaFatal
from worker.core.records import Headers
from worker.kafka.client.command_clients import ANSWER_TIMEOUT, client_log, open_client, reach
from worker.kafka.client.config import Config
from worker.kafka.cluster.admin_answers import record_limit
from worker.kafka.producer.sink import ANY_PARTITION, broken
from worker.settings import Connection

# An unreachable broker may come back. A record that has waited for it so many seconds is given up.
PATIENCE = 60.0

_TIMED_OUT = KafkaError._MSG_TIMED_OUT  # noqa: SLF001 - librdkafka's own codes begin with an underscore

# An idempotent producer sends nothing until the broker has given it an id. It asks when it is made and then every half
# second, so half of the first records waited 0.5 s (measured 2026). Only statistics tell when it has its id.
_ID_WITHIN = 5.0

# The most bytes that a broker takes in one request (`socket.request.max.bytes`).
_LARGEST = 100_000_000

PARTITIONER = "murmur2_random"  # Java's, so a key has one partition whichever client publishes it

_TUNING: Config = {
    # Requests are sent soon, so that a latency is not the publisher's own. Under load they share a send anyway.
    "linger.ms": 1,
    # These bound the memory: a full queue makes the caller wait. The largest record has room.
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 128 * 1024,
}
_PROMISED: Config = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": int(PATIENCE * 1000),
    "statistics.interval.ms": 100,
}

# Called with the place of a record, in the form of `Record.source`, or with None if it was refused.
Told: TypeAlias = Callable[[str | None], None]


class Publisher:
    """Sends records to one topic. One thread uses it. Owns a producer that is in no transaction.

    `acknowledged` and `refused` count the broker's answers so far. `refusal` is its first reason, in words.
    """

    def __init__(self, kafka: Connection, topic: str, partitioner: str = PARTITIONER) -> None:
        """Raises `BadConfiguration` if no broker answers, or if the topic does not exist for us."""
        self._topic = topic
        self._failure: KafkaFatal | None = None
        self.acknowledged = 0
        self.refused = 0
        self.refusal: str | None = None
        self._log = client_log()
        self._is_ready = False
        contact = reach(topic, kafka, "WRITE")
        self.partitions = len(contact.cluster.topics[topic].partitions)
        limit = min(record_limit(topic, contact, ANSWER_TIMEOUT) or _LARGEST, _LARGEST)
        # The topic's limit is for a batch of records. The client refuses a single larger record, which costs no other.
        tuning = {**_TUNING, "batch.size": min(limit, 1_000_000)}
        limits = {"message.max.bytes": max(limit, 1_000)}
        promised = {**_PROMISED, **limits, "partitioner": partitioner, "stats_cb": self._on_statistics}
        self._producer = open_client(Producer, kafka, tuning, promised, self._log)
        self._wait_for_id()

    @property
    def waiting(self) -> int:
        """Number of records handed over and neither acknowledged nor refused."""
        return len(self._producer)

    def publish(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        told: Told | None = None,
        partition: int = ANY_PARTITION,
    ) -> bool:
        """Hand over one record, which is sent within about a millisecond. Returns False if `poll` must first make room.

        `told` is called from `poll` or `flush`. Raises `KafkaFatal` if no more records are taken.
        """
        reported = partial(self._reported, told)
        try:
            self._producer.produce(self._topic, value, key, partition, headers=list(headers), on_delivery=reported)
        except BufferError:
            return False
        except KafkaException as error:
            reported(error.args[0], None)
            self._check()
        return True

    def poll(self, timeout: float = 0.0) -> None:
        """Take in the broker's answers, waiting at most `timeout` seconds for the first.

        A record too large for its topic is only counted. Raises `KafkaFatal` if one was refused for another reason.
        """
        self._serve(self._producer.poll, timeout)

    def flush(self, timeout: float) -> int:
        """Wait at most `timeout` seconds for all answers. Returns how many are missing. Raises as `poll` does."""
        self._serve(self._producer.flush, timeout)
        return self.waiting

    def give_up(self) -> None:
        """Drop the records that still wait; some of them may have been sent."""
        self._producer.purge()

    def _wait_for_id(self) -> None:
        """Wait for the id, so that no latency includes the producer's start. If it is late, the first records wait."""
        deadline = time.monotonic() + _ID_WITHIN
        while not self._is_ready and time.monotonic() < deadline:
            self.poll(0.1)

    def _on_statistics(self, statistics: str) -> None:
        self._is_ready = self._is_ready or json.loads(statistics).get("eos", {}).get("idemp_state") == "Assigned"

    def _serve(self, serve: Callable[[float], int], timeout: float) -> None:
        try:
            serve(timeout)
        except Exception as error:
            raise broken(error) from error
        self._check()

    def _reported(self, told: Told | None, error: KafkaError | None, report: Report | None) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._refused(error)
        if told is not None:
            told(None if error or report is None else f"{self._topic}/{report.partition()}/{report.offset()}")

    def _refused(self, error: KafkaError) -> None:
        self.refused += 1
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self.refusal = self.refusal or f"larger than {self._topic} takes; raise its max.message.bytes"
        elif self._failure is None:
            late = f"no broker acknowledged it within {PATIENCE:g} s ({self._log.last or error.str()})"
            self.refusal = late if error.code() == _TIMED_OUT else error.str()
            self._failure = KafkaFatal(f"a record for {self._topic} was refused: {self.refusal}")

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
