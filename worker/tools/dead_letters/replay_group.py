"""A consumer group that moves in the transaction that produces: what was read counts as done exactly when it was sent.

Two things keep a second one out. A member of the group is seen by others, which then wait for it or give up; and the
transactional id is the group's name, so that starting a producer with it fences the producer that used it before, and
ends what a killed one left open. The records themselves are read elsewhere, without the group: what is read, and where
reading begins, is not its business.

Nothing is tried again after a transaction failed: it was taken back or not as a whole, Kafka knows which, and the next
run begins there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Report

from worker.core.failures import BadConfiguration, Incomplete, KafkaFatal
from worker.core.records import Message, Partition
from worker.kafka.client.command_clients import ANSWER_TIMEOUT, client_log, open_client
from worker.kafka.client.config import Config
from worker.kafka.cluster.admin_answers import group_if_told
from worker.settings import Connection
from worker.tools.closing import Closing

# Waiting for one call of a transaction. Where Kafka says that it may be called again, it is, for so long in all.
PATIENCE = 60.0
# After so long a killed member is forgotten; 6 s is the least that brokers take unless they are told otherwise.
SESSION_MS = 10_000
_WAIT_FOR_OTHERS = SESSION_MS / 1000 + 5
_POLL_EVERY = 0.25
# Topics are held up for their readers (`read_committed`) by the transaction of a killed process for so long, and up to
# 10 s more until the broker looks.
_TRANSACTION_MS = 15_000
# A topic limits the batch, not the record, and refuses all that is in it. A batch of several is no larger than this.
_BATCH_BYTES = 16 * 1024

_MEMBERSHIP: Config = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A classic group: every broker has it, and it forgets a killed member soon. KIP-848 takes 45 s.
    "group.protocol": "classic",
    "session.timeout.ms": SESSION_MS,
    # Reading what is committed waits for the end of the transaction in which a killed one may have committed.
    "isolation.level": "read_committed",
}
# Between two transactions the client waits so long for the markers of the first: 26 ms at 20, 10 at 5 (measured 2026).
_TUNING: Config = {"retry.backoff.ms": 5}
_PROMISED: Config = {
    "transaction.timeout.ms": _TRANSACTION_MS,
    "message.timeout.ms": _TRANSACTION_MS,
    "partitioner": "murmur2_random",  # Java's: one key, one partition, whichever client produces it
    "message.max.bytes": 100_000_000,  # each record is held against its topic's limit before
    "batch.size": _BATCH_BYTES,
}

_CURES = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: "this client may not use it; grant it READ on the group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant this client WRITE on the transactional id of that name",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant this client IDEMPOTENT_WRITE on the cluster",
    KafkaError.INVALID_SESSION_TIMEOUT: f"the broker's group.min.session.timeout.ms must be {SESSION_MS} or less",
}


class Committed(NamedTuple):
    """What Kafka keeps of a group for one partition: the next offset, None when it has none, and a text beside it."""

    next_offset: int | None
    notes: str


class Sending(NamedTuple):
    """A message, and the partition it goes to; -1 leaves that to its key. Its topic takes batches of `max_bytes`."""

    message: Message
    partition: int
    max_bytes: int


def committed(kafka: Connection, group: str, partitions: Sequence[Partition]) -> dict[Partition, Committed]:
    """What the group has committed, without joining or making it. Raises `BadConfiguration`."""
    consumer = _consumer(kafka, group)
    try:
        return _committed(consumer, group, partitions)
    finally:
        consumer.close()


class ReplayGroup(Closing):
    """The group's only member and its transactional producer. Used by one thread; `with` leaves the group."""

    def __init__(self, kafka: Connection, topic: str, group: str, tell: Callable[[str], object]) -> None:
        """`tell` gets a sentence for the operator while another member is waited for."""
        self._kafka = kafka
        self._topic = topic
        self._group = group
        self._tell = tell
        self._assigned: list[Partition] | None = None
        self._was_revoked = False
        self._refused: str | None = None
        self._consumer = _consumer(kafka, group)
        # It is the group's name, so that no right on one more name is needed.
        self._producer = open_client(Producer, kafka, _TUNING, {**_PROMISED, "transactional.id": group}, client_log())

    def join(self, partitions: Sequence[Partition]) -> dict[Partition, Committed]:
        """Become the only member, and read what the group has committed.

        Raises `Incomplete` when another member stays, `BadConfiguration` when access is missing.
        """
        self._wait_for_others()
        try:
            self._again(self._producer.init_transactions)
            self._consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
            self._wait_for_assignment()
        except KafkaException as error:
            raise BadConfiguration(f"group {self._group} cannot be used: {_said(error.args[0])}") from error
        if self._was_revoked or set(self._assigned or ()) != set(partitions):
            raise Incomplete(f"{self._another()}; nothing was sent")
        return _committed(self._consumer, self._group, partitions)

    def serve(self) -> None:
        """Stay in the group; call it every few seconds. Raises `KafkaFatal` once it is not ours alone any more."""
        message = self._consumer.poll(0)
        error = message.error() if message is not None else None
        if self._was_revoked or (error is not None and error.fatal()):
            raise KafkaFatal(f"{self._another()}; what was sent stays sent: run this again to go on")

    def send(self, sendings: Sequence[Sending], offsets: Mapping[Partition, Committed]) -> None:
        """One transaction: all of these messages and offsets, or none of either. Raises `KafkaFatal` when none."""
        self.serve()
        positions = [TopicPartition(*at, to.next_offset or 0, metadata=to.notes) for at, to in offsets.items()]
        try:
            self._producer.begin_transaction()
            for sending in sendings:
                self._produce(sending)
            member = self._consumer.consumer_group_metadata()
            self._again(lambda seconds: self._producer.send_offsets_to_transaction(positions, member, seconds))
            self._again(self._producer.commit_transaction)
        except (KafkaException, SystemError) as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Leave the group, so that the next replay need not wait."""
        self._consumer.close()

    def _wait_for_others(self) -> None:
        deadline = time.monotonic() + _WAIT_FOR_OTHERS
        is_told = False
        while _has_members(self._kafka, self._group):
            if time.monotonic() > deadline:
                raise Incomplete(
                    f"group {self._group} has a member: another replay, whose end is to be waited for, or consumers "
                    "of another kind, a worker's perhaps: then name a group of its own (--group)"
                )
            if not is_told:
                self._tell(
                    f"group {self._group} has a member, another replay or one that was killed a moment ago; "
                    f"waiting {_WAIT_FOR_OTHERS:g} s for it to leave"
                )
                is_told = True
            time.sleep(_POLL_EVERY)

    def _wait_for_assignment(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._assigned is None:
            message = self._consumer.poll(_POLL_EVERY)
            if message is not None and (error := message.error()) and error.code() in _CURES:
                raise KafkaException(error)
            if time.monotonic() > deadline:
                raise KafkaFatal(f"the group {self._group} takes no member within {PATIENCE:g} s; try again")

    def _another(self) -> str:
        return (
            f"group {self._group} was shared out anew: another replay came into it, or {self._topic} has more "
            "partitions now"
        )

    # Callbacks of the client: they run inside `poll` and `close`, and never raise

    def _on_assign(self, consumer: Consumer, positions: list[TopicPartition]) -> None:
        self._assigned = [Partition(at.topic, at.partition) for at in positions]
        consumer.assign([])  # it is for the membership alone: nothing is fetched

    def _on_revoke(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self._was_revoked = True
        consumer.unassign()

    def _on_report(self, error: KafkaError | None, report: Report) -> None:
        if error is not None and self._refused is None:
            self._refused = f"a record for topic {report.topic()} was refused: {error.str()}"

    def _produce(self, sending: Sending) -> None:
        (topic, key, value, headers, _, _), partition, max_bytes = sending
        self._producer.produce(topic, value, key, partition, on_delivery=self._on_report, headers=list(headers))
        if max_bytes < _BATCH_BYTES:
            self._producer.flush(ANSWER_TIMEOUT)  # alone

    def _again(self, call: Callable[[float], Any]) -> None:
        """Call it, with the seconds it may take, as long as Kafka says that trying again may help."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                call(ANSWER_TIMEOUT)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def _failed(self, error: Exception) -> KafkaFatal:
        """What a broken transaction means; it is taken back where that can be done."""
        reason = error.__cause__ or error
        failure = reason.args[0] if reason.args and isinstance(reason.args[0], KafkaError) else None
        if failure is not None and failure.txn_requires_abort():
            with suppress(KafkaException):  # else the next run's producer ends it
                self._producer.abort_transaction(ANSWER_TIMEOUT)
        why = self._refused or (_said(failure) if failure is not None else str(reason))
        return KafkaFatal(f"a transaction failed: {why}; run this again: it goes on where Kafka knows that it is")

    def __repr__(self) -> str:
        return f"<ReplayGroup {self._group} of {self._topic}, revoked={self._was_revoked}>"


def _consumer(kafka: Connection, group: str) -> Consumer:
    return open_client(Consumer, kafka, {}, {**_MEMBERSHIP, "group.id": group}, client_log())


def _committed(consumer: Consumer, group: str, partitions: Sequence[Partition]) -> dict[Partition, Committed]:
    try:
        found = consumer.committed([TopicPartition(*partition) for partition in partitions], ANSWER_TIMEOUT)
    except KafkaException as error:
        raise BadConfiguration(f"the offsets of group {group} cannot be read: {_said(error.args[0])}") from error
    for at in found:
        if at.error is not None:
            raise BadConfiguration(f"the offsets of group {group} cannot be read: {_said(at.error)}")
    return {
        Partition(at.topic, at.partition): Committed(at.offset if at.offset >= 0 else None, at.metadata or "")
        for at in found
    }


def _has_members(kafka: Connection, group: str) -> bool:
    """A broker that does not tell is believed: a second member shows when the first is disturbed."""
    described = group_if_told(kafka, group, ANSWER_TIMEOUT, client_log())
    return described is not None and bool(described.members)


def _said(error: KafkaError) -> str:
    """The cure where there is one: it says what is wrong in fewer words than the client."""
    return _CURES.get(error.code()) or error.str()
