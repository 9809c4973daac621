"""Where answers go: one idempotent producer, used by the loop's thread alone.

Owns the producer and the messages it has no room for. A broker that is away is waited for; a refusal is fatal, and so
is a client that has lost all brokers (`stranded.py`). An answer is durable when its delivery report says so, and by
nothing else: `flush() == 0` proves nothing (seen 2026). But a call of Python for each report cost 0.9 µs of the loop
(profiles). So all messages of a place share one callback, a `Receipt`:

    produce × n ──▶ the client holds n references ──report by report, in `poll`──▶ none is left: the place is durable

The client calls it for a message that is refused, and lets go of it for each that is not. When the last reference has
gone, all messages are durable, or the refusal of one was told before. It rests on the client's own reference counts and
CPython's: `tests/contract/test_sink.py` has what must hold.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import Message as Report

from worker.core.failures import KafkaFatal, ReplyRefused
from worker.core.records import Message, Place
from worker.core.runs import fields_of
from worker.kafka.client.config import admin_config, producer_config
from worker.kafka.client.errors import GONE, ClientLog, configuring, kafka_error
from worker.kafka.client.statistics import ClientWatcher, Unacknowledged
from worker.kafka.client.stranded import Stranded
from worker.kafka.cluster.topics import Topics
from worker.settings import KafkaSettings

# Only while a flush is under way does the client send what waits for its `linger.ms`, and it counts in milliseconds.
SHORTEST_FLUSH = 0.001
# For the report of a refusal, which the client writes a moment after it has ceased to take messages, seconds.
REPORT_TIMEOUT, REPORT_POLLS = 0.1, 10

ANY_PARTITION = -1  # the partitioner's choice

# A message that the client let go of, for another reason that it tells as well.
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001 - librdkafka's own codes begin so
# By these a topic refuses what others take: it is gone or closed to us, or its settings say so.
_OF_TOPIC = GONE | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.POLICY_VIOLATION,
}


class KafkaSink:
    """The producer of answers and dead letters."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topics: Topics,
        logger: logging.Logger,
        watcher: ClientWatcher | None = None,
        *,
        on_error: Callable[[KafkaError], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`watcher` hears once a second what is not acknowledged yet, `on_error` what goes wrong with connections."""
        self._kafka = kafka
        self._stranded = Stranded("producer", self._new_asking_client, clock)
        self._destinations = Destinations(topics.partitions, topics.compacted, topics.replies)
        self._log = ClientLog(logger)
        self._unacknowledged = Unacknowledged(watcher, self._log, clock)
        self._receipts = Receipts(self._destinations)
        self._overflow: deque[tuple[Message, Receipt]] = deque()
        config = producer_config(kafka, topics.largest_message, topics.largest_batch)
        with configuring("producer"):
            callbacks = {"stats_cb": self._on_statistics, "error_cb": on_error}
            self._producer = Producer({**config, **callbacks}, logger=self._log)
        self._producer.poll(0.0)  # what it says of its configuration would count as a message until it is heard

    @property
    def undelivered(self) -> int:
        return len(self._producer) + len(self._overflow)

    def send(self, messages: Sequence[Message], place: Place) -> None:
        """Take a place's messages, in order; `poll` returns it when all are durable. Raises `KafkaFatal`."""
        receipt = Receipt(place, self._receipts)
        if not self._overflow:
            messages = self._produce(messages, receipt)
        self._overflow.extend([(message, receipt) for message in messages])

    def poll(self, timeout: float) -> Sequence[Place]:
        """The places whose messages are now durable, once each, within `timeout` seconds. Raises `KafkaFatal`."""
        try:
            self._producer.poll(timeout)
        except Exception as error:
            raise self._refusal() or broken(error) from error
        if (refusal := self._receipts.refusal or self._receipts.purged) is not None:
            raise self._refusal() or refusal
        self._send_late()
        return self._receipts.take()

    def push(self) -> None:
        """Send at once what waits for company in the client, within a millisecond. Raises `KafkaFatal`."""
        try:
            self._producer.flush(SHORTEST_FLUSH)
        except Exception as error:
            raise self._refusal() or broken(error) from error

    def close(self, timeout: float) -> int:
        """Wait up to `timeout` seconds for what is under way, then let go. Returns how many messages are given up."""
        try:
            self._producer.flush(timeout)
            given_up = self.undelivered
            self._producer.purge()
        except Exception as error:  # noqa: BLE001  # a SystemError, as in `poll`: there is nothing left to save
            self._log.tell("close", f"the producer did not close in good order: {error.__cause__ or error}")
            return self.undelivered
        return given_up

    def _send_late(self) -> None:
        """Send what there is room for by now, in order."""
        while self._overflow:
            message, receipt = self._overflow[0]
            if self._produce([message], receipt):
                return
            self._overflow.popleft()

    def _produce(self, messages: Sequence[Message], receipt: Receipt) -> Sequence[Message]:
        """Hand them to the client. Returns what its queue has no room for. Raises `KafkaFatal` as `send` does."""
        produce, destinations = self._producer.produce, self._destinations
        waiting = iter(fields_of(messages))
        for topic, key, value, headers, source, chosen in waiting:
            if key:  # nearly every answer goes where its key belongs: decided here, without a call for each
                partition = ANY_PARTITION if chosen is None else chosen
            else:
                key, partition = destinations.without_key(topic, key, source, chosen)  # noqa: PLW2901  # see there
            try:
                produce(topic, value, key, partition, receipt, None, 0, headers)  # type: ignore[arg-type]  # a list is invariant
            except BufferError:
                return [Message(topic, key, value, headers or [], source, chosen), *map(Message._make, waiting)]
            except Exception as error:
                self._refusal()
                why = f"the producer does not take a record for {topic}: {error.__cause__ or error}"
                receipt.refuse(why, topic, kafka_error(error))
                assert self._receipts.refusal is not None
                raise self._receipts.refusal from error
        return ()

    def _refusal(self) -> KafkaFatal | None:
        """The reason of a client that takes nothing more, or lets go of messages: the record that it reports next."""
        for _ in range(REPORT_POLLS):
            if self._receipts.refusal is None:
                with suppress(Exception):  # that it takes nothing more, once again
                    self._producer.poll(REPORT_TIMEOUT / REPORT_POLLS)
        return self._receipts.refusal or self._receipts.purged

    def _on_statistics(self, statistics: str) -> None:
        """Runs inside `produce`, `poll` and `flush`; an exception here would be raised there, out of place."""
        brokers = self._unacknowledged.heard(statistics)
        if brokers is not None and (why := self._stranded.why(brokers)) is not None:
            self._receipts.fail(KafkaFatal(f"{why}; start again: what it had to send is answered then"))

    def _new_asking_client(self) -> Consumer:
        return Consumer({**admin_config(self._kafka), "group.id": self._kafka.group_id, "log_level": 0})

    def __repr__(self) -> str:
        refusal = self._receipts.refusal
        return f"<KafkaSink undelivered={self.undelivered} overflow={len(self._overflow)} refused={refusal}>"


class Receipts:
    """Places all of whose messages are durable, once each; and why a message never will be, if so."""

    def __init__(self, destinations: Destinations) -> None:
        self.refusal: KafkaFatal | None = None
        self.purged: KafkaFatal | None = None  # the client let go of a message, as it does after another was refused
        self._destinations = destinations
        self._complete: list[Place] = []

    def complete(self, place: Place) -> None:
        """The client has let go of the place's receipt."""
        self._complete.append(place)

    def refuse(self, place: Place, why: str, topic: str | None, error: KafkaError | None) -> None:
        """One of the place's messages will never be durable. Runs in the client's callbacks, and raises nothing."""
        stands = f"nothing past {place.line.partition}/{place.offset} is committed"
        why = f"{why}; {stands}: mend the topic or its access, and start again"
        failure = self._destinations.failure(why, topic, error)
        if error is not None and error.code() in PURGED:
            self.purged = self.purged or failure
        else:
            self.fail(failure)

    def fail(self, failure: KafkaFatal) -> None:
        """Nothing more will be durable. Keep the first reason."""
        self.refusal = self.refusal or failure

    def take(self) -> list[Place]:
        """The places completed since the last call. Means nothing once there is a refusal."""
        complete, self._complete = self._complete, []
        return complete


class Receipt:
    """The callback of all messages of one place: called for a refused one, let go of when none is left."""

    __slots__ = ("_place", "_receipts")

    def __init__(self, place: Place, receipts: Receipts) -> None:
        self._place = place
        self._receipts = receipts

    def __call__(self, error: KafkaError | None, report: Report) -> None:
        """Runs inside the producer, and never raises. Successes are not told (`delivery.report.only.error`)."""
        if error is not None:
            self.refuse(why_refused(report.topic(), error), report.topic(), error)

    def refuse(self, why: str, topic: str | None, error: KafkaError | None) -> None:
        self._receipts.refuse(self._place, why, topic, error)

    def __del__(self) -> None:
        self._receipts.complete(self._place)


@dataclass(frozen=True, slots=True)
class Destinations:
    """The topics that are written to: how many partitions each has, which are compacted, and which requests name."""

    partitions: Mapping[str, int]
    compacted: frozenset[str] = frozenset()
    replies: frozenset[str] = frozenset()

    def without_key(self, topic: str, key: bytes | None, source: int, chosen: int | None) -> tuple[bytes | None, int]:
        """The key and partition of a message without a key, which goes where its request, `source`, was."""
        partition = source % self.partitions[topic] if chosen is None else chosen
        return b"" if topic in self.compacted else key, partition

    def is_final(self, topic: str | None, error: KafkaError | None) -> bool:
        """Whether every answer like this one would be refused until a new start."""
        if error is None:
            return False
        is_reply = bool(self.replies) if topic is None else topic in self.replies
        return error.code() == KafkaError.MSG_SIZE_TOO_LARGE or (is_reply and error.code() in _OF_TOPIC)

    def failure(self, why: str, topic: str | None, error: KafkaError | None) -> KafkaFatal:
        """The end of a worker that was refused so, which says whether it is the matter of one reply topic."""
        is_of_reply = topic in self.replies and error is not None and error.code() in _OF_TOPIC
        return ReplyRefused(why, topic) if topic is not None and is_of_reply else KafkaFatal(why)


def why_refused(topic: str | None, error: KafkaError) -> str:
    """Why a message for this topic will never be durable. The client refuses a topic not found for half a minute."""
    if error.code() in GONE:
        return f"topic {topic} was deleted, or made anew with fewer partitions: {error.str()}"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return f"the broker refused a record for topic {topic} as too large: was its max.message.bytes lowered?"
    keys = "; a compacted topic takes none without a key" if error.code() == KafkaError.INVALID_RECORD else ""
    return f"the broker refused a record for topic {topic}: {error.str()}{keys}"


def broken(error: Exception) -> KafkaFatal:
    """A broken producer raises a `SystemError` around the `KafkaException` that has the reason (seen 2026)."""
    return KafkaFatal(f"the producer failed: {error.__cause__ or error}; start again")
