"""Answers out exactly once: the loop's thread fills transactions, and a thread of their own ends them.

    loop ── begin, send ──▶ [ producer ] ── commit or abort ──▶ committer: offsets, end, or another producer
     ▲                                                                              │
     └────────────────────────────── ended ◀────────────────────────────────────────┘

The producer belongs to the loop's thread while a transaction is open, and to the committer from `commit` or `abort`
until `ended` has told the result. So the client's callbacks run in one of the two threads, never in both. Two things
end the worker: another process that uses our id, and a broker that refuses us for good.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaError, TopicPartition

from worker.core.failures import BadConfiguration, KafkaFatal, Stop
from worker.core.ordering.ledger import Stretch
from worker.core.records import Ending, Fields, Partition
from worker.kafka.client.config import transaction_config
from worker.kafka.client.errors import ClientLog
from worker.kafka.client.membership import TransactionalId
from worker.kafka.client.statistics import ClientWatcher, Unacknowledged
from worker.kafka.cluster.examination import START_TIMEOUT
from worker.kafka.cluster.topics import Topics
from worker.kafka.producer.sink import Destinations
from worker.kafka.transactions.committer import EndRequest, TransactionCommitter
from worker.kafka.transactions.transactional_producer import TransactionalProducer
from worker.settings import KafkaSettings

CLOSE_AT_ONCE = 1.0  # seconds, where nothing is open


class KafkaTransactions:
    """The transactional producer of answers and dead letters, and the thread that ends its transactions."""

    def __init__(  # noqa: PLR0913  # what a client, a transaction and those who hear of them need
        self,
        kafka: KafkaSettings,
        topics: Topics,
        name: TransactionalId,
        timeout_ms: int,
        member: Callable[[], object],
        logger: logging.Logger,
        watcher: ClientWatcher | None = None,
        *,
        on_error: Callable[[KafkaError], None] = lambda _: None,
    ) -> None:
        """Begin at once to abort what a predecessor with this id has left open. Raises `BadConfiguration`.

        `member` gives the consumer's group metadata of that moment, by which the broker knows what we may commit.
        `on_error` hears of connection errors, in any thread.
        """
        self._name = name
        self._timeout_ms = timeout_ms
        self._member = member
        self._log = ClientLog(logger)
        self._unacknowledged = Unacknowledged(watcher, self._log)
        self._destinations = Destinations(topics.partitions, topics.compacted, topics.replies)
        self._on_error = on_error
        self._config = transaction_config(kafka, name.text, timeout_ms, topics.largest_message, topics.largest_batch)
        self._statistics: str | None = None  # the last text, not yet told
        self._is_ready = self._is_open = False
        self._dead: BaseException | None = None
        self._committer = self._new_committer()

    def wait_until_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Wait, once before the first transaction, until the broker knows our id. Raises `BadConfiguration`."""
        try:
            ending = self.ended(timeout)
        except KafkaFatal as error:
            raise BadConfiguration(str(error)) from error
        if ending is None:
            raise BadConfiguration(
                f"no broker opens transactions for {self._name.text} within {timeout:g} s: "
                f"{self._log.last or 'none says why'}; do as many run as transaction.state.log.replication.factor says?"
            )
        self._is_ready = True

    @property
    def undelivered(self) -> int:
        return len(self._committer.producer)

    def begin(self) -> None:
        """Open a transaction. Waits for nothing."""
        assert self._is_ready
        self._is_open = True
        self._committer.producer.begin()

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        """Put a stretch's messages into the open transaction, in order. They are dropped if it cannot be committed."""
        self._committer.producer.send(messages, stretch)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._is_open = False
        positions = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        self._committer.ask(EndRequest(positions, self._member()))

    def abort(self) -> None:
        self._is_open = False
        self._committer.ask(EndRequest(None))

    def ended(self, timeout: float) -> Ending | None:
        """The transaction's ending, waiting at most `timeout` seconds; None until it ends. Raises `KafkaFatal`."""
        if self._dead is None:
            told = self._committer.told(timeout)
            self._tell()
            if told is None and self._committer.is_stuck():
                self._abandon()
            if told is None or isinstance(told, Ending):
                return told
            self._dead = told
        if isinstance(self._dead, Stop):
            raise self._dead
        raise KafkaFatal(f"the committer died of {self._dead!r}; start again") from self._dead

    def serve(self, timeout: float) -> None:
        """Run the client's callbacks. Not to be called from `commit` or `abort` until `ended` has told the result."""
        self._committer.producer.serve(timeout)
        self._tell()

    def close(self, timeout: float) -> None:
        """Abort the open transaction, so that it holds up no reader, and end the thread."""
        if self._is_open:
            self.abort()
        self._committer.end(timeout)

    def _tell(self) -> None:
        statistics, self._statistics = self._statistics, None
        if statistics is not None:
            self._unacknowledged.heard(statistics)

    def _new_committer(self, failure: str | None = None) -> TransactionCommitter:
        return TransactionCommitter(self._name, self._timeout_ms, self._new_producer, self._log, failure)

    def _abandon(self) -> None:
        """Leave a client that hangs where it is: the next client finds out how far it came."""
        why = self._committer.abandon()
        self._log.tell("abandoned", f"{why}; another producer takes over the transactional id {self._name.text}")
        self._committer = self._new_committer(why)

    def _new_producer(self) -> TransactionalProducer:
        callbacks: dict[str, Callable[..., object]] = {"stats_cb": self._on_statistics, "error_cb": self._on_error}
        return TransactionalProducer(self._config, self._destinations, self._log, callbacks)

    def _on_statistics(self, statistics: str) -> None:
        """Keep the text. Runs in the thread that serves the client; the loop's thread tells the watcher."""
        self._statistics = statistics

    def __repr__(self) -> str:
        return f"<KafkaTransactions {self._name.text} open={self._is_open} undelivered={self.undelivered}>"


def try_transactions(
    kafka: KafkaSettings,
    topics: Topics,
    name: TransactionalId,
    timeout_ms: int,
    logger: logging.Logger,
    timeout: float,
) -> None:
    """Have the broker prepare transactions for `name`, an id that no worker may have. Raises `BadConfiguration`."""
    transactions = KafkaTransactions(kafka, topics, name, timeout_ms, lambda: None, logger)
    try:
        transactions.wait_until_ready(timeout)
    finally:
        transactions.close(CLOSE_AT_ONCE)
