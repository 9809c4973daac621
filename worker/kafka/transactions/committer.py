"""The committer: a thread that ends transactions, and the producer that it ends them with.

It owns the producer while it works, and replaces it when the outcome of a transaction is not known. It waits for a
broker that is away, for as long as it takes.

A call to the client may never return. `send_offsets_to_transaction` does not, whatever its timeout, when it is called
again after a broker died in the middle of it (librdkafka 2.16; seen in three of four kills under load). So it is called
once. A committer with a call that is long overdue `is_stuck`: the loop abandons it and starts another, which shuts the
lost one out. If the call does return, its thread and client end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from queue import Empty, Queue, SimpleQueue
from threading import Thread
from typing import NamedTuple

from confluent_kafka import KafkaError, TopicPartition

from worker.core.failures import KafkaFatal
from worker.core.records import Ending
from worker.kafka.client.errors import ClientLog, refusal
from worker.kafka.client.membership import TransactionalId
from worker.kafka.cluster.topics import missing, needed_for_transactions
from worker.kafka.transactions.transactional_producer import Reaction, TransactionalProducer, Trouble

# Seconds of one call to the client. Between two calls the committer hears the client's reports of a broker that is
# away, and looks whether the worker wants to end.
SLICE = 0.5
# Seconds from a call that was answered at once to its repetition.
PAUSE = 0.01
# Seconds of `send_offsets_to_transaction`. A coordinator that is there answers in milliseconds.
OFFSETS_TIMEOUT = 3.0
# Seconds to ask whether a topic is gone: the client itself says so too late, and the broker may be away.
ASK_TIMEOUT = 1.0
# Seconds after its timeout until a call counts as lost. A busy machine holds a call up for a second or two.
STUCK_AFTER = 5.0
# A transaction must have been open for this share of its timeout before we believe that the coordinator aborted it. The
# share is below 1 because the coordinator's clock is not ours.
BELIEVED_SHARE = 0.9
# With these codes the group's coordinator shuts us out for good. Other codes may also be about an answer's topic.
_REFUSED = frozenset({KafkaError.FENCED_INSTANCE_ID, KafkaError.GROUP_AUTHORIZATION_FAILED})
# Seconds that count as waited between two looks, at most: a process that stood still (SIGSTOP) has not waited.
LOOK = 0.2


class EndRequest(NamedTuple):
    """A request to end the transaction: to commit with `offsets`, or to abort with None."""

    offsets: list[TopicPartition] | None
    member: object = None


class _Over(Exception):
    """The worker ends and its time is up, or this committer was abandoned."""


class TransactionCommitter:
    """Takes over the id, and ends transactions. The take-over is told as an `Ending` with the given `failure`."""

    def __init__(
        self,
        name: TransactionalId,
        timeout_ms: int,
        new_producer: Callable[[], TransactionalProducer],
        log: ClientLog,
        failure: str | None = None,
    ) -> None:
        """Raises `BadConfiguration`."""
        self._name = name
        self._timeout_ms = timeout_ms
        self._new_producer = new_producer
        self._log = log
        self._failure = failure
        self._end_by = math.inf
        self._call, self._allowed = "", 0.0
        self._calls = 0  # begins and ends of calls: odd while a call is under way
        self._seen, self._seen_at, self._waited = 0, 0.0, 0.0  # `_calls` at the last look, and how long it stands
        self._is_abandoned = False
        self.producer = new_producer()
        self._asked: SimpleQueue[EndRequest | None] = SimpleQueue()
        # No SimpleQueue, because the loop waits for it with a timeout: see `ThreadLane`.
        self._told: Queue[Ending | BaseException] = Queue()
        # A daemon: a call that hangs must not keep a process alive that has decided to end.
        self._thread = Thread(target=self._serve, name="committer", daemon=True)
        self._thread.start()

    # In the loop's thread

    def ask(self, asked: EndRequest) -> None:
        self._asked.put(asked)

    def told(self, timeout: float) -> Ending | BaseException | None:
        """The ending of a transaction, waiting at most `timeout` seconds; None while it is not known."""
        try:
            return self._told.get(timeout=timeout) if timeout > 0 else self._told.get_nowait()
        except Empty:
            return None

    def is_stuck(self) -> bool:
        """True if a call to the client is long overdue. To be asked again and again: it adds up the waiting time."""
        now, calls = time.monotonic(), self._calls
        self._waited = self._waited + min(LOOK, now - self._seen_at) if calls == self._seen and calls % 2 else 0.0
        self._seen, self._seen_at = calls, now
        return self._waited > self._allowed + STUCK_AFTER

    def abandon(self) -> str:
        """Stop waiting for this committer. Returns the reason."""
        self._is_abandoned = True
        return f"the Kafka client did not come back from {self._call}"

    def end(self, timeout: float) -> None:
        """End the thread. A call under way gets `timeout` seconds."""
        self._end_by = time.monotonic() + timeout
        self._asked.put(None)
        self._thread.join(timeout)

    # In its thread

    def _serve(self) -> None:
        try:
            began = time.monotonic()
            self._initialise()
            self._told.put(Ending(self._failure, time.monotonic() - began))
            while (asked := self._asked.get()) is not None:
                began = time.monotonic()
                failure = self._end(asked)
                self._told.put(Ending(failure, time.monotonic() - began))
        except _Over:
            pass
        except BaseException as error:  # noqa: BLE001  # nothing may die here unseen: the loop raises it
            self._told.put(error)
        self.producer.drop()

    def _end(self, asked: EndRequest) -> str | None:
        """End the transaction. Returns why it was not committed, or None. Raises `KafkaFatal` if all would fail."""
        producer, ended = self.producer, None
        failure = producer.failure
        if failure is None and asked.offsets is not None:
            ended = self._commit(asked.offsets, asked.member)
            if ended is None:
                return None
            patience = max(0.0, min(ASK_TIMEOUT, self._end_by - time.monotonic()))
            failure = producer.why_absent(patience) or producer.failure or ended.text
        trouble = ended
        if trouble is None or trouble.reaction is Reaction.ABORT:
            trouble = self._insist("abort_transaction", producer.abort)
            if ended is not None and ended.error is not None and ended.error.code() in _REFUSED:
                raise KafkaFatal(refusal(ended.error))
            producer.serve(0.0)  # the report of a refused message may be waiting
        failure = failure or producer.failure or "taken back"
        refused = producer.refusal(ended, f"{failure}; mend the topic or its access, and start again")
        if trouble is not None:
            self._renew(trouble)
        elif producer.failure is not None and refused is None:  # a topic that refuses may hold up the id for ever
            # After a refused message the next transaction would fail too: "skipped sequence numbers" (seen 2026).
            self._renew(Trouble(Reaction.RENEW, producer.failure, None))
        if refused is not None:  # the open transaction was aborted by now: no reader waits for it
            raise refused
        return failure

    def _commit(self, offsets: list[TopicPartition], member: object) -> Trouble | None:
        producer = self.producer
        trouble = self._made(
            "send_offsets_to_transaction",
            lambda timeout: producer.send_offsets(offsets, member, timeout),
            OFFSETS_TIMEOUT,
        )
        if trouble is not None:  # even if the call may be repeated: it might never return, as said above
            return trouble
        return self._insist("commit_transaction", producer.commit)

    def _insist(
        self, name: str, call: Callable[[float], Trouble | None], patience: float | None = None
    ) -> Trouble | None:
        """Repeat a call until it is decided, at most for as long as the broker keeps the transaction open."""
        give_up_at = self.producer.opened_at + (self._timeout_ms / 1000 if patience is None else patience)
        while True:
            trouble = self._made(name, call, SLICE)
            if trouble is None or trouble.reaction is not Reaction.AGAIN:
                return trouble
            if time.monotonic() >= self._end_by:
                raise _Over
            if time.monotonic() >= give_up_at:
                return trouble
            self.producer.serve(PAUSE)

    def _made(self, name: str, call: Callable[[float], Trouble | None], timeout: float) -> Trouble | None:
        self._call, self._allowed = name, timeout
        self._calls += 1
        trouble = call(max(0.0, min(timeout, self._end_by - time.monotonic())))
        self._calls += 1
        if self._is_abandoned:
            raise _Over
        return trouble

    def _renew(self, trouble: Trouble) -> None:
        """Go on with another producer, once a broker answers. This ends the id's open transaction, if there is one.

        A fenced producer has one of two causes. The coordinator aborted our transaction, which it never does before the
        timeout. Or another process has our id, which never happens to a unique id: then this worker must end.
        """
        open_for = time.monotonic() - self.producer.opened_at
        is_early = open_for < BELIEVED_SHARE * self._timeout_ms / 1000
        if trouble.is_fenced and is_early and not self._name.is_unique:
            raise KafkaFatal(self._why_closed(trouble))
        self._log.tell("renewed", f"another producer takes over the transactional id {self._name.text}: {trouble.text}")
        self.producer.drop()
        self.producer = self._new_producer()
        self._initialise()

    def _initialise(self) -> None:
        while trouble := self._insist("init_transactions", self.producer.initialise, patience=math.inf):
            if not (trouble.is_fenced and self._name.is_unique):
                raise KafkaFatal(self._why_closed(trouble))
            self.producer = self._new_producer()

    def _why_closed(self, trouble: Trouble) -> str:
        """The reason why the broker opens no transactions for us, and the cure."""
        code = None if trouble.error is None else trouble.error.code()
        if trouble.is_fenced:
            return (
                f"another process uses the transactional id {self._name.text}: {trouble.text}; give each replica its "
                "own, WORKER_DELIVERY__TRANSACTIONAL_ID, and end a predecessor that stood still"
            )
        if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return missing(needed_for_transactions(self._name), "write")
        return f"Kafka opens no transactions for {self._name.text}: {trouble.text}; start again"
