"""The sink of answers: one idempotent producer, used by the loop's thread alone.

It owns the producer, and the messages that the producer has no room for. It waits for a broker that is away. A refusal
is fatal, and so is a client that has lost all brokers (`stranded.py`). Only its delivery report proves that an answer
is durable: `flush() == 0` proves nothing (seen 2026). But a Python call for each report cost 0.9 µs of the loop
(profiles). So all messages of a stretch share one callback, a `Receipt`:

    produce × n ──▶ the client holds n references ──report by report, in `poll`──▶ none is left: the stretch is durable

The client calls the receipt for a refused message, and lets go of it for each other message. When the last reference is
gone, all messages are durable, or a refusal was told before. This rests on the client's own reference counts and
CPython's: `tests/contract/test_sink.py` tests what must hold.
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
from worker.core.ordering.ledger import Stretch
from worker.core.records import Fields
from worker.kafka.client.config import admin_config, producer_config
from worker.kafka.client.errors import GONE, ClientLog, configuring, kafka_error
from worker.kafka.client.statistics import ClientWatcher, Unacknowledged
from worker.kafka.client.stranded import Stranded
from worker.kafka.cluster.topics import Topics
from worker.settings import KafkaSettings

# Seconds: one millisecond, the client's unit. Only during a flush does the client send before `linger.ms` is over.
SHORTEST_FLUSH = 0.001
# Seconds for the report of a refusal, which the client writes a moment after it has stopped taking messages.
REPORT_TIMEOUT, REPORT_POLLS = 0.1, 10

ANY_PARTITION = -1  # the partitioner's choice

# Codes of a message that the client let go of for another reason, which it also reports.
PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001 - librdkafka's own codes begin so
# With these codes a topic refuses what other topics take: it is gone or closed to us, or its settings say so.
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
        self._overflow: deque[tuple[Fields, Receipt]] = deque()
        config = producer_config(kafka, topics.largest_message, topics.largest_batch)
        with configuring("producer"):
            callbacks = {"stats_cb": self._on_statistics, "error_cb": on_error}
            self._producer = Producer({**config, **callbacks}, logger=self._log)
        self._producer.poll(0.0)  # its log lines on the configuration would count as messages until they are heard

    @property
    def undelivered(self) -> int:
        return len(self._producer) + len(self._overflow)

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        """Take a stretch's messages, in order; `poll` returns it when all are durable. Raises `KafkaFatal`."""
        receipt = Receipt(stretch, self._receipts)
        if not self._overflow:
            messages = self._produce(messages, receipt)
        self._overflow.extend([(message, receipt) for message in messages])

    def poll(self, timeout: float) -> Sequence[Stretch]:
        """The stretches whose messages are now durable, once each, within `timeout` seconds. Raises `KafkaFatal`."""
        try:
            self._producer.poll(0.0 if self._receipts.are_there else timeout)
        except Exception as error:
            raise self._refusal() or broken(error) from error
        if (refusal := self._receipts.refusal or self._receipts.purged) is not None:
            raise self._refusal() or refusal
        self._send_late()
        return self._receipts.take()

    def push(self) -> None:
        """Send at once, within a millisecond, the messages that wait for company. Raises `KafkaFatal`."""
        try:
            self._producer.flush(SHORTEST_FLUSH)
        except Exception as error:
            raise self._refusal() or broken(error) from error

    def close(self, timeout: float) -> int:
        """Wait up to `timeout` seconds for messages under way, then give up the others. Returns how many those are."""
        try:
            self._producer.flush(timeout)
            given_up = self.undelivered
            self._producer.purge()
        except Exception as error:  # noqa: BLE001  # a SystemError, as in `poll`: there is nothing left to save
            self._log.tell("close", f"the producer did not close in good order: {error.__cause__ or error}")
            return self.undelivered
        return given_up

    def _send_late(self) -> None:
        """Send the messages that there is room for by now, in order."""
        while self._overflow:
            message, receipt = self._overflow[0]
            if self._produce([message], receipt):
                return
            self._overflow.popleft()

    def _produce(self, messages: Sequence[Fields], receipt: Receipt) -> Sequence[Fields]:
        """Hand messages to the client. Returns the rest when its queue is full. Raises `KafkaFatal` as `send` does."""
        produce, destinations = self._producer.produce, self._destinations
        waiting = iter(messages)
        for topic, key, value, headers, source, chosen in waiting:
            if key:  # nearly every answer has a key, so this is decided here, without a call for each
                partition = ANY_PARTITION if chosen is None else chosen
            else:
                key, partition = destinations.without_key(topic, key, source, chosen)  # noqa: PLW2901  # see there
            try:
                produce(topic, value, key, partition, receipt, None, 0, headers or None)  # type: ignore[arg-type]  # a list is invariant
            except BufferError:
                return [(topic, key, value, headers, source, chosen), *waiting]
            except Exception as error:
                self._refusal()
                why = f"the producer does not take a record for {topic}: {error.__cause__ or error}"
                receipt.refuse(why, topic, kafka_error(error))
                assert self._receipts.refusal is not None
                raise self._receipts.refusal from error
        return ()

    def _refusal(self) -> KafkaFatal | None:
        """The reason why the client takes nothing more, or lets go of messages: its next report names the record."""
        for _ in range(REPORT_POLLS):
            if self._receipts.refusal is None:
                with suppress(Exception):  # it says once again that it takes nothing more
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
    """Collects stretches whose messages are all durable, once each, and the reason if a message never will be."""

    def __init__(self, destinations: Destinations) -> None:
        self.refusal: KafkaFatal | None = None
        self.purged: KafkaFatal | None = None  # the client let go of a message, as it does after another was refused
        self._destinations = destinations
        self._complete: list[Stretch] = []

    @property
    def are_there(self) -> bool:
        """True if there are some to `take`: a flush may have brought them, or they had no messages."""
        return bool(self._complete)

    def complete(self, stretch: Stretch) -> None:
        """The client has let go of the stretch's receipt."""
        self._complete.append(stretch)

    def refuse(self, stretch: Stretch, why: str, topic: str | None, error: KafkaError | None) -> None:
        """Note that a message of the stretch will never be durable. Runs in the client's callbacks; raises nothing."""
        stands = f"nothing past {stretch.first} is committed"
        why = f"{why}; {stands}: mend the topic or its access, and start again"
        failure = self._destinations.failure(why, topic, error)
        if error is not None and error.code() in PURGED:
            self.purged = self.purged or failure
        else:
            self.fail(failure)

    def fail(self, failure: KafkaFatal) -> None:
        """Note that nothing more will be durable. Keep the first reason."""
        self.refusal = self.refusal or failure

    def take(self) -> list[Stretch]:
        """The stretches completed since the last call. Means nothing once there is a refusal."""
        complete, self._complete = self._complete, []
        return complete


class Receipt:
    """The callback that a stretch's messages share: called for a refused message, let go of with the last message."""

    __slots__ = ("_receipts", "_stretch")

    def __init__(self, stretch: Stretch, receipts: Receipts) -> None:
        self._stretch = stretch
        self._receipts = receipts

    def __call__(self, error: KafkaError | None, report: Report) -> None:
        """Runs inside the producer, and never raises. Successes are not reported (`delivery.report.only.error`)."""
        if error is not None:
            self.refuse(why_refused(report.topic(), error), report.topic(), error)

    def refuse(self, why: str, topic: str | None, error: KafkaError | None) -> None:
        self._receipts.refuse(self._stretch, why, topic, error)

    def __del__(self) -> None:
        self._receipts.complete(self._stretch)


@dataclass(frozen=True, slots=True)
class Destinations:
    """The topics that we write to, with partition counts; the `compacted` ones, and `replies`, which requests name."""

    partitions: Mapping[str, int]
    compacted: frozenset[str] = frozenset()
    replies: frozenset[str] = frozenset()

    def without_key(self, topic: str, key: bytes | None, source: int, chosen: int | None) -> tuple[bytes | None, int]:
        """The key and partition for a message without a key: its request's partition, `source`, decides."""
        partition = source % self.partitions[topic] if chosen is None else chosen
        return b"" if topic in self.compacted else key, partition

    def is_final(self, topic: str | None, error: KafkaError | None) -> bool:
        """True if every answer like this one would be refused until a new start."""
        if error is None:
            return False
        is_reply = bool(self.replies) if topic is None else topic in self.replies
        return error.code() == KafkaError.MSG_SIZE_TOO_LARGE or (is_reply and error.code() in _OF_TOPIC)

    def failure(self, why: str, topic: str | None, error: KafkaError | None) -> KafkaFatal:
        """The error that ends a refused worker: `ReplyRefused` if the refusal concerns only one reply topic."""
        is_of_reply = topic in self.replies and error is not None and error.code() in _OF_TOPIC
        return ReplyRefused(why, topic) if topic is not None and is_of_reply else KafkaFatal(why)


def why_refused(topic: str | None, error: KafkaError) -> str:
    """The reason why a message is never durable. The client refuses a topic that it did not find for half a minute."""
    if error.code() in GONE:
        return f"topic {topic} was deleted, or made anew with fewer partitions: {error.str()}"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return f"the broker refused a record for topic {topic} as too large: was its max.message.bytes lowered?"
    keys = "; a compacted topic takes none without a key" if error.code() == KafkaError.INVALID_RECORD else ""
    return f"the broker refused a record for topic {topic}: {error.str()}{keys}"


def broken(error: Exception) -> KafkaFatal:
    """The failure of a broken producer: its `SystemError` wraps the `KafkaException` with the reason (seen 2026)."""
    return KafkaFatal(f"the producer failed: {error.__cause__ or error}; start again")
