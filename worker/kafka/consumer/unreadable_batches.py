"""Records that the client cannot read: a batch damaged on a broker's disk, or one that unpacks to more than it takes.

The client reports a batch that it cannot unpack at its first offset for ever (rdk #5581), however far into it we have
come, and would hold up its partition for good. A failure is believed the third time: until then it may be a bad network
card. Then all records of the batch are unreadable for the same reason. Of records that it cannot parse inside a valid
batch it reports nothing: the partition stands (`core/stalls.py`), and whether that is why is looked at first.

Where the batch ends is looked for beside the loop (`batch_end.py`); meanwhile the partition is not fetched, for each
fetch unpacks in vain. Then the records are handed on a few at a time, each in its place, and the client goes on behind
the last.

    stands ──┐
    fails ─×3┴▶ stopped, where does the batch end? ──▶ handed on piece by piece ──last─▶ fetched again behind it
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from worker.core.records import Partition, Record
from worker.kafka.client.errors import words_of
from worker.kafka.client.log import ClientLog
from worker.kafka.consumer.batch_end import BatchEnds, BatchQuestion
from worker.kafka.consumer.pauses import By, Pauses
from worker.kafka.consumer.to_records import Flowing

ATTEMPTS = 3

# So many of one poll's records at most, so that the others wait no longer than an answer to these takes: 0.1 ms each.
PIECE = 200

UNPARSED = "its batch is damaged on the broker's disk, and nothing from the damage on can be parsed"


class Failures:
    """Where each partition is stuck, and how often it failed there."""

    def __init__(self) -> None:
        self._stuck: dict[Partition, tuple[int, int]] = {}
        self._past: dict[Partition, int] = {}

    def failed(self, partition: Partition, first: int, position: int) -> tuple[int, bool]:
        """Note a failure of the batch that begins at `first`. Returns the offset it is about; whether it is certain.

        Nothing before `position` is wanted: a group may stand in the middle of a batch.
        """
        past = self._past.get(partition, 0)
        at = max(first, position, past)
        stuck, failures = self._stuck.get(partition, (at, 0))
        failures = failures + 1 if at == stuck else 1
        self._stuck[partition] = at, failures
        return at, failures >= ATTEMPTS or first < past  # of the rest of a batch nothing is tried again

    def given_up(self, partition: Partition, last: int) -> None:
        """No record up to `last` is tried again."""
        self._past[partition] = last + 1

    def forget(self, partition: Partition) -> None:
        """It is not ours any more, or is read again."""
        self._stuck.pop(partition, None)
        self._past.pop(partition, None)


@dataclass(slots=True)
class _Batch:
    """The rest of one that is given up: from `next` to `last`, which is None while it is looked for."""

    question: BatchQuestion
    reason: str
    next: int
    last: int | None = None


class _Damage(NamedTuple):
    """What the client could not parse when it was looked at, and says nothing of."""

    first: int
    last: int


class Unreadable:
    """The batches that are given up. Owned by the source."""

    def __init__(self, consumer: Consumer, flowing: Flowing, pauses: Pauses, ends: BatchEnds, log: ClientLog) -> None:
        self._consumer = consumer
        self._flowing = flowing
        self._pauses = pauses
        self._ends = ends
        self._log = log
        self._failures = Failures()
        self._batches: dict[Partition, _Batch] = {}
        self._suspects: dict[Partition, int] = {}
        self._damages: dict[Partition, _Damage] = {}

    def failed(self, partition: Partition, first: int, begun: int, reason: str) -> None:
        """Try it again, or give it up; `first` is the batch's own, and `begun` where the group stood."""
        if partition in self._batches:  # it was on its way when the partition was stopped
            return
        at, is_certain = self._failures.failed(partition, first, self._wanted_from(partition, begun))
        self._log.tell("unreadable", f"{partition}/{at} cannot be read: {reason}")
        if self._go_to(partition, at) and is_certain:
            self._search(BatchQuestion(partition, first, at), reason)

    def suspected(self, partition: Partition, at: int) -> None:
        """The partition stands there, and nothing says why: look whether the client can parse what is there.

        To be called in a callback of the client: what is done about it, is done outside.
        """
        if partition not in self._batches:
            self._suspects[partition] = at

    def passed(self, partition: Partition, offset: int) -> int:
        """Where the client has to go on for a partition that is read again from `offset`, which may be damaged.

        The records there are handed on at once: to find them again would take as long as the first time, and a
        transaction that failed for its idleness would fail again.
        """
        damage = self._damages.get(partition)
        if damage is None or not damage.first <= offset <= damage.last:
            return offset
        self._pauses.stop(partition, By.UNREADABLE)
        question = BatchQuestion(partition, None, offset)
        self._batches[partition] = _Batch(question, UNPARSED, offset, damage.last)
        return damage.last + 1

    @property
    def is_waiting(self) -> bool:
        return bool(self._batches or self._suspects)

    def share(self, most: int) -> int:
        """How many of a poll's records these may be."""
        return min(PIECE, (most + 2) // 4) if any(map(self._may_give, self._batches)) else 0

    def records(self, most: int) -> list[Record]:
        """What may be handed on now, in order for each partition; a few, for the others' sake."""
        self._hear()
        while self._suspects:
            partition, at = self._suspects.popitem()
            self._search(BatchQuestion(partition, None, at), UNPARSED)
        given: list[Record] = []
        for partition in list(filter(self._may_give, self._batches)):
            given += self._give(self._batches[partition], min(PIECE, most) - len(given))
        return given

    def holds(self, partition: Partition) -> bool:
        return partition in self._batches

    def forget(self, partitions: Iterable[Partition]) -> None:
        """They are not ours any more."""
        for partition in partitions:
            self.rewind(partition)
            self._damages.pop(partition, None)

    def rewind(self, partition: Partition) -> None:
        """It is read again from elsewhere."""
        self._failures.forget(partition)
        self._suspects.pop(partition, None)
        if self._batches.pop(partition, None) is not None:
            self._pauses.release(partition, By.UNREADABLE)

    def _search(self, question: BatchQuestion, reason: str) -> None:
        self._pauses.stop(question.partition, By.UNREADABLE)
        self._batches[question.partition] = _Batch(question, reason, question.at)
        self._ends.ask(question)

    def _wanted_from(self, partition: Partition, begun: int) -> int:
        """A group may stand in the middle of a batch, and a log begin there; what is beyond the end is of a log that is
        gone.
        """
        try:
            begin, end = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        except KafkaException:  # the client knows of no such partition any more, and takes no seek either
            return begun
        return max(begin, begun if begun < end else 0)

    def _may_give(self, partition: Partition) -> bool:
        return self._batches[partition].last is not None and self._pauses.is_stopped_only(partition, By.UNREADABLE)

    def _hear(self) -> None:
        if (answer := self._ends.answer()) is None:
            return
        question, last = answer
        batch = self._batches.get(question.partition)
        if batch is None or batch.question is not question:  # it has left meanwhile
            return
        if last >= question.at and self._go_to(question.partition, last + 1):
            batch.last = last
            self._failures.given_up(question.partition, last)
            if question.first is None:
                self._damages[question.partition] = _Damage(question.at, last)
            self._log.tell(
                f"unreadable {question.partition}",
                f"{question.partition}: the {last + 1 - question.at} records from {question.at} to {last}, one batch, "
                f"cannot be read and are answered with errors: {batch.reason}",
            )
        else:
            self.rewind(question.partition)

    def _give(self, batch: _Batch, most: int) -> list[Record]:
        assert batch.last is not None
        begin, (topic, number) = batch.next, batch.question.partition
        partition = self._flowing[topic][number]  # as what the client brings, it may be a stranger
        batch.next = min(begin + most, batch.last + 1)
        if batch.next > batch.last:
            del self._batches[partition]
            self._pauses.release(partition, By.UNREADABLE)
        return [Record(partition, at, None, None, (), None, batch.reason) for at in range(begin, batch.next)]

    def _go_to(self, partition: Partition, offset: int) -> bool:
        try:
            self._consumer.seek(TopicPartition(partition.topic, partition.number, offset))
        except KafkaException as error:  # taken from us by the very poll that brought the error
            self._log.tell("seek", f"{partition}/{offset} is left to its next owner: {words_of(error)}")
            return False
        return True
