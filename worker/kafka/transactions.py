"""Where answers go exactly once: transactions, filled by the loop's thread and ended by a thread of its own.

    loop ── begin, send ──▶ [ producer ] ── commit or abort ──▶ committer: offsets, end, or another producer
     ▲                                                                              │
     └────────────────────────────── ended ◀────────────────────────────────────────┘

The producer belongs to the loop's thread while a transaction is open, and to the committer from `commit` or `abort`
until `ended` has told how it went; so the client's callbacks run in one of the two, never in both. A broker that is
away stops nobody: the committer waits for it, for as long as it takes. Two things end the worker: somebody else who
uses our id, and a broker that refuses us for good.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from queue import Empty, Queue, SimpleQueue
from threading import Thread
from typing import NamedTuple

from confluent_kafka import TopicPartition

from worker.core.failures import BadConfiguration, KafkaFatal, Stop
from worker.core.ledger import Place
from worker.core.records import Ending, Message, Partition
from worker.kafka.client_config import transaction_config
from worker.kafka.client_log import ClientLog
from worker.kafka.client_statistics import Watcher
from worker.kafka.producing import tell
from worker.kafka.topics import Topics
from worker.kafka.transaction_errors import Reaction, Trouble, is_owner_alive, why_closed, why_fenced, why_refused
from worker.kafka.transactional_id import TransactionalId
from worker.kafka.transactional_producer import TransactionalProducer
from worker.settings import KafkaSettings

# Seconds of one call to the client. Between two of them the committer hears what the client has to say of a broker that
# is away, and whether the worker wants to end.
SLICE = 0.5
# Between two calls that were answered at once, and are to be made again.
PAUSE = 0.01

READY_TIMEOUT = 15.0  # as long as the other questions at the start may take


class _End(NamedTuple):
    """What the committer is asked for; `offsets` None: to take the transaction back."""

    offsets: list[TopicPartition] | None
    member: object = None


class _Closed(Exception):
    """The worker ends, and time is up."""


class KafkaTransactions:
    """The transactional producer of answers and dead letters, and the thread that ends its transactions."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topics: Topics,
        name: TransactionalId,
        timeout_ms: int,
        member: Callable[[], object],
        logger: logging.Logger,
        watcher: Watcher | None = None,
    ) -> None:
        """Begins at once to take back what a predecessor with this id has left open. Raises `BadConfiguration`.

        `member` gives the consumer's group metadata of that moment, by which the broker knows what it may commit.
        """
        self._kafka = kafka
        self._name = name
        self._timeout_ms = timeout_ms
        self._member = member
        self._watcher = watcher
        self._log = ClientLog(logger)
        self._partitions = topics.partitions
        self._config = transaction_config(kafka, name.text, timeout_ms, topics.largest_message, topics.largest_batch)
        self._statistics: str | None = None  # the last, not yet told
        self._is_ready = self._is_open = False
        self._close_by = math.inf
        self._dead: BaseException | None = None
        self._producer = self._new_producer()
        self._asked: SimpleQueue[_End | None] = SimpleQueue()
        # Waited for with a timeout, and so no SimpleQueue: see `InferenceLanes`.
        self._told: Queue[Ending | BaseException] = Queue()
        # A daemon: a call that hangs must not keep a process alive that has decided to end.
        self._thread = Thread(target=self._serve, name="committer", daemon=True)
        self._thread.start()

    def wait_until_ready(self, timeout: float = READY_TIMEOUT) -> None:
        """Until the broker knows us by our id. To be called once, before the first transaction.

        Raises `BadConfiguration` when it does not let us, or does not say so within `timeout` seconds.
        """
        try:
            ending = self.ended(timeout)
        except KafkaFatal as error:
            raise BadConfiguration(str(error)) from error
        if ending is None:
            raise BadConfiguration(
                f"no broker opens transactions for {self._name.text} within {timeout:g} s: "
                f"{self._log.last or 'none says why'}; check that the brokers run, and that they are as many as "
                "transaction.state.log.replication.factor says (3 unless it is set)"
            )
        self._is_ready = True

    @property
    def undelivered(self) -> int:
        """Messages taken and not yet reported on."""
        return len(self._producer)

    def begin(self) -> None:
        """Open a transaction. Waits for nothing."""
        assert self._is_ready
        self._is_open = True
        self._producer.begin()

    def send(self, message: Message, place: Place) -> None:
        """Put a message into the open transaction, in order; dropped when that cannot be committed any more."""
        self._producer.send(message, place)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to end the transaction, with these next offsets in it."""
        self._is_open = False
        positions = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        self._asked.put(_End(positions, self._member()))

    def abort(self) -> None:
        """Begin to take it back."""
        self._is_open = False
        self._asked.put(_End(None))

    def ended(self, timeout: float) -> Ending | None:
        """How the transaction ended, waiting at most `timeout` seconds; None while it has not. Raises `KafkaFatal`."""
        self._tell()
        if self._dead is None:
            try:
                told = self._told.get(timeout=timeout) if timeout > 0 else self._told.get_nowait()
            except Empty:
                return None
            if isinstance(told, Ending):
                return told
            self._dead = told
        if isinstance(self._dead, Stop):
            raise self._dead
        raise KafkaFatal(f"the committer died of {self._dead!r}; start again") from self._dead

    def serve(self, timeout: float) -> None:
        """Let the client tell what it has to tell, waiting at most `timeout` seconds for the first word.

        Not to be called between `commit` or `abort` and what `ended` says of it.
        """
        self._producer.serve(timeout)
        self._tell()

    def close(self, timeout: float) -> None:
        """Take back what is open, so that it holds up no reader, and end the thread: within `timeout` seconds.

        What is not done by then the broker does, after the transaction's timeout.
        """
        self._close_by = time.monotonic() + timeout
        if self._is_open:
            self.abort()
        self._asked.put(None)
        self._thread.join(timeout)

    def _tell(self) -> None:
        statistics, self._statistics = self._statistics, None
        if statistics is not None:
            tell(self._watcher, self._log, statistics)

    # The committer

    def _serve(self) -> None:
        try:
            began = time.monotonic()
            self._initialise()
            self._told.put(Ending(None, time.monotonic() - began))
            while (asked := self._asked.get()) is not None:
                began = time.monotonic()
                self._told.put(Ending(self._end(asked), time.monotonic() - began))
        except _Closed:
            pass
        except BaseException as error:  # noqa: BLE001  # nothing may die here unseen: `ended` raises it
            self._told.put(error)
        self._producer.drop()

    def _end(self, asked: _End) -> str | None:
        """Why the transaction was not committed; None when it was."""
        failure, trouble = self._producer.failure, None
        if failure is None and asked.offsets is not None:
            trouble = self._commit(asked.offsets, asked.member)
            if trouble is None:
                return None
            failure = self._producer.failure or trouble.text
        refused = why_refused(trouble)
        if trouble is None or trouble.reaction is Reaction.ABORT:
            trouble = self._insist(self._producer.abort)
            if refused is not None:
                raise KafkaFatal(refused)
        if trouble is not None:
            self._renew(trouble)
        elif self._producer.failure is not None:
            # After a refused message the next transaction would fail too: "skipped sequence numbers" (measured).
            self._renew(Trouble(Reaction.RENEW, self._producer.failure, None))
        return failure or "taken back"

    def _commit(self, offsets: list[TopicPartition], member: object) -> Trouble | None:
        trouble = self._insist(lambda timeout: self._producer.send_offsets(offsets, member, timeout))
        return trouble or self._insist(self._producer.commit)

    def _insist(self, call: Callable[[float], Trouble | None], patience: float | None = None) -> Trouble | None:
        """Make a call until it is decided, or for as long as the broker keeps the transaction open."""
        give_up_at = self._producer.opened_at + (self._timeout_ms / 1000 if patience is None else patience)
        while True:
            trouble = call(max(0.0, min(SLICE, self._close_by - time.monotonic())))
            if trouble is None or trouble.reaction is not Reaction.AGAIN:
                return trouble
            if time.monotonic() >= self._close_by:
                raise _Closed
            if time.monotonic() >= give_up_at:
                return trouble._replace(reaction=Reaction.RENEW)
            self._producer.serve(PAUSE)

    def _renew(self, trouble: Trouble) -> None:
        """Go on with another producer, once a broker answers. The id's transaction, if any is open, ends with it."""
        open_for = time.monotonic() - self._producer.opened_at
        if trouble.is_fenced and is_owner_alive(
            open_for=open_for, timeout=self._timeout_ms / 1000, is_unique=self._name.is_unique
        ):
            raise KafkaFatal(why_fenced(self._name, trouble))
        self._log.tell("renewed", f"another producer takes over the transactional id {self._name.text}: {trouble.text}")
        self._producer.drop()
        self._producer = self._new_producer()
        self._initialise()

    def _initialise(self) -> None:
        while trouble := self._insist(self._producer.initialise, patience=math.inf):
            if not (trouble.is_fenced and self._name.is_unique):
                raise KafkaFatal(why_closed(self._kafka, self._name, self._timeout_ms, trouble))
            self._producer = self._new_producer()

    def _new_producer(self) -> TransactionalProducer:
        return TransactionalProducer(self._config, self._partitions, self._log, self._on_statistics)

    def _on_statistics(self, statistics: str) -> None:
        """Runs in whichever thread serves the client; the loop's tells it."""
        self._statistics = statistics

    def __repr__(self) -> str:
        return f"<KafkaTransactions {self._name.text} open={self._is_open} undelivered={self.undelivered}>"
