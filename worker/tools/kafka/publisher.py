"""The way of records into one topic, for commands and the demo."""

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

# A broker that is away may come back. A record that has waited so many seconds for it is given up.
PATIENCE = 60.0

_TIMED_OUT = KafkaError._MSG_TIMED_OUT  # noqa: SLF001 - librdkafka's own codes begin with an underscore

# An idempotent producer sends nothing before the broker has given it an id, for which it asks when it is made and then
# each half second: half of the first records waited 0.5 s (measured 2026). Only statistics tell when it has one.
_ID_WITHIN = 5.0

# No broker takes more in one request (`socket.request.max.bytes`).
_LARGEST = 100_000_000

PARTITIONER = "murmur2_random"  # Java's: one key, one partition, whichever client publishes it

_TUNING: Config = {
    # Requests leave soon, so that a latency is not the publisher's own; under load they have company anyway.
    "linger.ms": 1,
    # Bound the memory: what is full waits. The largest record has room.
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 128 * 1024,
}
_PROMISED: Config = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": int(PATIENCE * 1000),
    "statistics.interval.ms": 100,
}

# Hears the place of a record, as `Record.source` has it; None: it was refused.
Told: TypeAlias = Callable[[str | None], None]


class Publisher:
    """Sends records to one topic. One thread uses it. Owns a producer that is in no transaction.

    `acknowledged` and `refused` count what the broker has said so far; `refusal` is its first reason, in words.
    """

    def __init__(self, kafka: Connection, topic: str, partitioner: str = PARTITIONER) -> None:
        """Raises `BadConfiguration` when no broker answers, or there is no such topic for us."""
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
        # The topic limits a set of records as one: a single one that is too large is refused here, and costs no other.
        tuning = {**_TUNING, "batch.size": min(limit, 1_000_000)}
        limits = {"message.max.bytes": max(limit, 1_000)}
        promised = {**_PROMISED, **limits, "partitioner": partitioner, "stats_cb": self._on_statistics}
        self._producer = open_client(Producer, kafka, tuning, promised, self._log)
        self._wait_for_id()

    @property
    def waiting(self) -> int:
        """Records handed over and neither acknowledged nor refused."""
        return len(self._producer)

    def publish(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        told: Told | None = None,
        partition: int = ANY_PARTITION,
    ) -> bool:
        """Hand over one record, which leaves within about a millisecond. False: there is no room before `poll`.

        `told` is called from `poll` or `flush`. Raises `KafkaFatal` when nothing more is taken.
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
        """Hear of what was handed over, waiting at most `timeout` seconds for the first.

        A record too large for its topic is counted. Raises `KafkaFatal` once one was refused for another reason.
        """
        self._serve(self._producer.poll, timeout)

    def flush(self, timeout: float) -> int:
        """Wait for what is under way, at most `timeout` seconds. Returns how many still wait. Raises as `poll` does."""
        self._serve(self._producer.flush, timeout)
        return self.waiting

    def give_up(self) -> None:
        """Forget what is still waiting; some of it may have been sent."""
        self._producer.purge()

    def _wait_for_id(self) -> None:
        """So that no record's latency is the producer's own start. What it cannot do in time, records will find out."""
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
