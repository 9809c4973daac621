"""One producer with a transactional id, from its first transaction to a failure from which it cannot recover.

It owns the client, and keeps the first reason why the open transaction cannot be committed. A delivery report may give
that reason. Only refused messages are reported, because a callback for each answer would cost 0.5 µs to make and 0.3 to
serve (measured 2026). One thread at a time uses the producer: to fill the transaction, or to end it.

| the client says | it means | what follows |
|---|---|---|
| retriable | nothing was decided yet | the same call again |
| requires abort | nothing of the transaction will be durable | it is aborted; the producer goes on |
| fatal, anything else, or no end in the transaction's timeout | the outcome is not known | another producer, same id |
| the broker has forgotten the producer (`_FORGOTTEN`) | nothing of it will be durable | another producer, same id |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Report

from worker.core.failures import KafkaFatal
from worker.core.ordering.ledger import Stretch
from worker.core.records import Fields
from worker.kafka.client.config import Config
from worker.kafka.client.errors import GONE, ClientLog, configuring, kafka_error
from worker.kafka.producer.sink import ANY_PARTITION, PURGED, Destinations, why_refused

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})  # noqa: SLF001 - librdkafka's own codes begin with an underscore

# A broker forgets a producer after `transactional.id.expiration.ms` without a transaction. If the group's offsets are
# refused first, the client wants an abort and goes on with the forgotten producer: each transaction without an answer
# in it failed for ever (seen 2026, librdkafka 2.16).
_FORGOTTEN = frozenset({KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID})


class Reaction(Enum):
    AGAIN = "the same call again"
    ABORT = "abort the transaction"
    RENEW = "another producer"


class Trouble(NamedTuple):
    """A failed call. `error` is None if the exception has no error of the client's."""

    reaction: Reaction
    text: str
    error: KafkaError | None

    @property
    def is_fenced(self) -> bool:
        return self.error is not None and self.error.code() in _FENCED


def trouble_of(failure: Exception) -> Trouble:
    """Translate an exception that the client raised."""
    error = kafka_error(failure)
    if error is None:
        return Trouble(Reaction.RENEW, repr(failure), None)
    return Trouble(_reaction(error), error.str(), error)


class _Found:
    """The first reason. It is apart from the producer, so that no client refers to the producer: see `drop`."""

    failure: str | None = None
    refused: tuple[str | None, KafkaError | None] | None = None  # the topic and the reason of a final refusal

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations

    def fail(self, why: str) -> None:
        self.failure = self.failure or why

    def hear(self, topic: str | None, error: KafkaError | None) -> None:
        if self._destinations.is_final(topic, error):
            self.refused = self.refused or (topic, error)

    def on_report(self, error: KafkaError | None, report: Report) -> None:
        """Runs inside any call except `produce`. The report names no record: the whole batch is refused alike."""
        if error is not None and error.code() not in PURGED:
            self.fail(why_refused(report.topic(), error))
            self.hear(report.topic(), error)


class TransactionalProducer:
    """The producer. `begin`, `send` and `serve` keep what failed in `failure`; the other calls return their trouble."""

    def __init__(
        self,
        config: Config,
        destinations: Destinations,
        log: ClientLog,
        callbacks: Mapping[str, Callable[..., object]],
    ) -> None:
        """Raises `BadConfiguration`."""
        self._destinations = destinations
        self._found = _Found(destinations)
        self.opened_at = 0.0  # monotonic seconds
        with configuring("producer"):
            self._client = Producer({**config, **callbacks, "on_delivery": self._found.on_report}, logger=log)

    @property
    def failure(self) -> str | None:
        """The reason why the open transaction cannot be committed; None while it can."""
        return self._found.failure

    def refusal(self, trouble: Trouble | None, why: str) -> KafkaFatal | None:
        """The error that ends the worker if a topic refused an answer for good, by a report or `trouble`; else None."""
        if trouble is not None:
            self._found.hear(None, trouble.error)
        return None if self._found.refused is None else self._destinations.failure(why, *self._found.refused)

    def begin(self) -> None:
        """Open a transaction. Asks no broker."""
        self._found.failure = None
        self.opened_at = time.monotonic()
        self._try(self._client.begin_transaction)

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        """Put a stretch's messages into the transaction. They are dropped if it has failed already."""
        produce, destinations, found = self._client.produce, self._destinations, self._found
        for topic, key, value, headers, source, chosen in messages:
            if found.failure is not None:
                return
            if key:  # nearly every answer has a key, so this is decided here, without a call for each
                partition = ANY_PARTITION if chosen is None else chosen
            else:
                key, partition = destinations.without_key(topic, key, source, chosen)  # noqa: PLW2901  # see there
            try:
                produce(topic, value, key, partition, None, None, 0, headers or None)  # type: ignore[arg-type]  # a list is invariant
            except Exception as error:  # noqa: BLE001  # also a full queue, and a SystemError of a broken producer
                self._refused(topic, stretch, trouble_of(error))

    def serve(self, timeout: float) -> None:
        self._try(self._client.poll, timeout)

    def initialise(self, timeout: float) -> Trouble | None:
        """Take over the id: this aborts what others have left open under it."""
        return _ended(self._client.init_transactions, timeout)

    def send_offsets(self, offsets: Sequence[TopicPartition], member: object, timeout: float) -> Trouble | None:
        """Put the group's next offsets into the transaction. `member` is the consumer's group metadata."""
        return _ended(self._client.send_offsets_to_transaction, offsets, member, timeout)

    def commit(self, timeout: float) -> Trouble | None:
        """Send the remaining messages, and make the whole transaction durable."""
        return _ended(self._client.commit_transaction, timeout)

    def abort(self, timeout: float) -> Trouble | None:
        return _ended(self._client.abort_transaction, timeout)

    def why_absent(self, timeout: float) -> str | None:
        """The reason if the cluster lacks one of our topics; None if not, or no answer in `timeout` seconds a topic."""
        for topic in self._destinations.partitions:
            try:
                found = self._client.list_topics(topic, timeout=timeout).topics.get(topic)
            except KafkaException:
                return None
            if found is not None and found.error is not None and found.error.code() in GONE:
                self._found.hear(topic, found.error)
                return why_refused(topic, found.error)
        return None

    def drop(self) -> None:
        """Forget unsent messages. The client closes with the last reference to it, so no cycle may hold it."""
        self._try(self._client.purge)

    def _refused(self, topic: str, stretch: Stretch, trouble: Trouble) -> None:
        self._found.hear(topic, trouble.error)
        self._found.fail(f"the producer does not take the answer to {stretch} for topic {topic}: {trouble.text}")

    def _try(self, call: Callable[..., Any], *arguments: float) -> None:
        trouble = _ended(call, *arguments)
        if trouble is not None:
            self._found.fail(f"the producer failed: {trouble.text}")

    def __len__(self) -> int:
        return len(self._client)


def _ended(call: Callable[..., Any], *arguments: Any) -> Trouble | None:
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001  # a broken producer raises SystemError; all of it is judged
        return trouble_of(error)
    return None


def _reaction(error: KafkaError) -> Reaction:
    if error.fatal() or error.code() in _FORGOTTEN:
        return Reaction.RENEW
    if error.retriable():
        return Reaction.AGAIN
    return Reaction.ABORT if error.txn_requires_abort() else Reaction.RENEW
