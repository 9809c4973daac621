"""Writes the group's store, and hears of it: for each partition an offset, and a note if the group is new there.

| writer | offset | note | when |
|---|---|---|---|
| the delivery, `commit` | the next to be read | none | all before it is settled |
| the gates, `note_start` | where the partition begins, under `latest` | `new` | before anything is handed out |
| the first rejections, `stand_back` | where a new one began | `new` | the worker stops without a request |

Kafka keeps the commit that arrives last. So a partition gives no record before its start is noted. With exactly-once
delivery a transaction carries the delivery's offsets (`transactions/`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from worker.core.records import CommitResult, Partition
from worker.kafka.client.errors import ClientLog, words_of
from worker.kafka.offsets.standings import NEW, StandingLookup

# Seconds after a failure until a start is sent again.
RETRY_AFTER = 0.1


class KafkaOffsets:
    """Owns commits under way; `standings` asks the group. One per consumer, used by the loop's thread."""

    def __init__(self, consumer: Consumer, log: ClientLog, clock: Callable[[], float]) -> None:
        self._consumer = consumer
        self._clock = clock
        self.standings = StandingLookup(consumer, log)
        self._results: list[CommitResult] = []
        self._noted: set[Partition] = set()  # their start is under way, perhaps since an earlier assignment
        self._started: dict[Partition, int] = {}  # the start that the group has taken
        self._not_before: dict[Partition, float] = {}  # when a start that failed is sent again
        self._new: dict[Partition, int] = {}  # where partitions began for which the group had committed no answer
        self.has_served = False  # a partition that was begun shows that the group committed answers before

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin an asynchronous commit of next offsets; never raises. Its result comes from `commit_results`."""
        positions = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        try:
            self._consumer.commit(offsets=positions, asynchronous=True)
        except (KafkaException, RuntimeError) as error:  # never sent; RuntimeError when the consumer is closed
            self._results.append(CommitResult({}, dict.fromkeys(offsets, words_of(error))))

    def commit_results(self) -> Sequence[CommitResult]:
        results, self._results = self._results, []
        return results

    def heard(self, error: KafkaError | None, positions: Sequence[TopicPartition]) -> Sequence[KafkaError]:
        """Take the result of one commit, of the delivery or with a note. Returns its errors.

        The client gives all results to one callback: the note tells them apart.
        """
        committed: dict[Partition, int] = {}
        failed: dict[Partition, str] = {}
        for at in positions:
            partition = Partition(at.topic, at.partition)
            wrong = error or at.error
            if at.metadata == NEW:
                self._heard_start(partition, at.offset, is_taken=wrong is None)
            elif wrong is None:
                committed[partition] = at.offset
            else:
                failed[partition] = wrong.str()
        if committed or failed:
            self._results.append(CommitResult(committed, failed))
        return [wrong for at in positions if (wrong := error or at.error) is not None]

    def note_start(self, partition: Partition, offset: int) -> bool:
        """Commit where a partition begins. To be called until it returns True: the group has it.

        One commit at a time: a second one could arrive after a commit of the delivery, and undo it.
        """
        if self._started.get(partition) == offset:
            return True
        if partition not in self._noted and self._clock() >= self._not_before.get(partition, 0.0):
            self._note_new(partition, offset)
        return False

    def begin(self, partition: Partition, offset: int, *, is_new: bool) -> None:
        """Hear of the first record of an assignment. `is_new`: the group had committed no answer there."""
        if is_new:
            self._new[partition] = offset
        else:
            self.has_served = True

    def stand_back(self, instead: Mapping[Partition, int | None]) -> None:
        """Commit where new partitions began, or the offset in `instead`, for a next worker; None commits nothing."""
        for partition, began in self._new.items():
            if (offset := instead.get(partition, began)) is not None:
                self._note_new(partition, offset)

    def forget(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            for of in (self._started, self._not_before, self._new):
                of.pop(partition, None)

    def _note_new(self, partition: Partition, offset: int) -> None:
        """Begin an asynchronous commit with the note; never raises."""
        try:
            self._consumer.commit(offsets=[TopicPartition(*partition, offset, NEW)], asynchronous=True)
        except (KafkaException, RuntimeError):  # the commit was never sent
            self._not_before[partition] = self._clock() + RETRY_AFTER
        else:
            self._noted.add(partition)

    def _heard_start(self, partition: Partition, offset: int, *, is_taken: bool) -> None:
        self._noted.discard(partition)
        if is_taken:
            self._started[partition] = offset
        else:
            self._not_before[partition] = self._clock() + RETRY_AFTER
