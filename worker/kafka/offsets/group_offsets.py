"""Reads and writes the group's store: for each partition an offset and a note.

| writer | offset | note (`Attempts`) | when |
|---|---|---|---|
| the delivery, `commit` | the next to be read | none: there was progress | all before it is settled |
| the gates, `begin_attempt` | the group's offset | `attempts=n` (`new`) | before an assignment's first record |
| the gates, `note_start` | the end, under `latest` | `attempts=0 new` | before anything is read |
| the first rejections, `stand_back` | where a new one began | `attempts=0 new` | the worker stops without a request |
| the quarantine, `note_isolated_run` | the record's own | `attempts=n trial` | before the record runs alone |
| the quarantine, `withdraw_note` | the record's own | `attempts=n` | the record is left to its next owner |
| the quarantine, `clear_note` | the record's own, or the next | `attempts=n`, or none | its partition leaves |
| the delivery, `withdraw_notes` | the record's own | `attempts=n` | it ran, and its transaction is to end |

Kafka keeps the commit that arrives last. So a partition gives no record before its attempt is noted, and no note is
sent while the delivery may commit something of the partition. With exactly-once delivery a transaction carries the
offsets (`transactions/`): it ends only when no note is under way for their partitions (`has_note_under_way`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from worker.core.records import CommitResult, Partition
from worker.kafka.client.errors import ClientLog, words_of
from worker.kafka.offsets.standings import NEW, Attempts, GroupStanding, StandingLookup, read_attempts

# A partition read with so many attempts is a suspect: two deaths in a row may be bad luck with machines, three are more
# likely caused by a record.
SUSPECT_FROM = 3

# Seconds until a note without a result is sent again, on the connection of the first: the later note is served later.
# The client itself gives up on a coordinator after 45.9 s under KIP-848 (measured 2026), and records wait for the note.
PATIENCE = 10.0

# Seconds after a failure until a commit that must succeed is sent again.
RETRY_AFTER = 0.1


class Note(NamedTuple):
    """A commit for one partition, with its note."""

    offset: int
    attempts: Attempts


class Notes:
    """For each partition, the note under way and the last note that the group took. Owned by `KafkaOffsets`."""

    def __init__(self, consumer: Consumer, clock: Callable[[], float]) -> None:
        self._consumer = consumer
        self._clock = clock
        self._under_way: dict[Partition, tuple[Note, float]] = {}  # and when the note counts as lost
        self._without_result: Counter[Partition] = Counter()  # also notes of earlier assignments
        self._taken: dict[Partition, Note] = {}
        self._not_before: dict[Partition, float] = {}

    def send(self, partition: Partition, note: Note) -> None:
        """Begin an asynchronous commit; never raises."""
        position = TopicPartition(*partition, note.offset, str(note.attempts))
        try:
            self._consumer.commit(offsets=[position], asynchronous=True)
        except (KafkaException, RuntimeError):  # the commit was never sent
            self._not_before[partition] = self._clock() + RETRY_AFTER
        else:
            self._under_way[partition] = note, self._clock() + PATIENCE
            self._without_result[partition] += 1

    def note(self, partition: Partition, note: Note) -> bool:
        """Commit the note, again after a failure. To be called until it returns True: the group has taken the note."""
        if self._taken.get(partition) == note:
            return True
        if not self.is_under_way([partition]) and self._clock() >= self._not_before.get(partition, 0.0):
            self.send(partition, note)
        return False

    def heard(self, partition: Partition, note: Note, *, is_taken: bool) -> None:
        """Take a result. Only the result of the last note sent counts: an earlier note may look just like it."""
        self._without_result[partition] -= 1
        if self._without_result[partition] > 0 or self._under_way.pop(partition, (None,))[0] != note:
            return
        if is_taken:
            self._taken[partition] = note
        else:
            self._not_before[partition] = self._clock() + RETRY_AFTER

    def is_under_way(self, partitions: Collection[Partition]) -> bool:
        """True if one of these partitions has a note without a result, which may still arrive."""
        if not self._under_way:
            return False
        now = self._clock()
        return any(p in self._under_way and now < self._under_way[p][1] for p in partitions)

    def forget(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            for of in (self._under_way, self._taken, self._not_before):
                of.pop(partition, None)


class KafkaOffsets:
    """Owns commits and notes under way; `standings` asks the group. One per consumer, used by the loop's thread."""

    def __init__(self, consumer: Consumer, log: ClientLog, clock: Callable[[], float]) -> None:
        self._consumer = consumer
        self._clock = clock
        self._notes = Notes(consumer, clock)
        self.standings = StandingLookup(consumer, log)
        self._results: list[CommitResult] = []
        self._attempts: dict[Partition, int] = {}  # the attempt under way
        self._isolated: dict[Partition, int] = {}  # the offset last noted to run alone
        self._last_sent: dict[Partition, Note] = {}  # also of partitions that left and may come back
        self._found: dict[Partition, Note] = {}  # the note before the attempt; also of partitions that left
        self._new: dict[Partition, int] = {}  # where partitions began for which the group had committed no answer
        self.has_served = False  # a partition that was begun shows that the group committed answers before

    # Commits of the delivery

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
        """Take the result of one commit, of the delivery or of a note. Returns its errors.

        The client gives all results to one callback: its text tells a note from a commit of the delivery.
        """
        committed: dict[Partition, int] = {}
        failed: dict[Partition, str] = {}
        for at in positions:
            partition = Partition(at.topic, at.partition)
            wrong = error or at.error
            if (attempts := read_attempts(at.metadata)) is not None:
                self._notes.heard(partition, Note(at.offset, attempts), is_taken=wrong is None)
            elif wrong is None:
                committed[partition] = at.offset
            else:
                failed[partition] = wrong.str()
        if committed or failed:
            self._results.append(CommitResult(committed, failed))
        return [wrong for at in positions if (wrong := error or at.error) is not None]

    # Attempts and isolated runs

    def earlier_attempts(self, partition: Partition, offset: int, standing: GroupStanding) -> Attempts:
        """The earlier attempts at this offset, by processes that died of a record or for another reason."""
        ours, times = self._last_sent.get(partition), standing.attempts.times
        if ours is not None and (ours.offset, ours.attempts.times) == (offset, times):
            # The group has our own note, or our note before that, of a withdrawn run. So no other process began since,
            # and we are alive. Earlier deaths still count.
            found = self._found.get(partition)
            if found is not None and found.offset == offset:
                return found.attempts
            return Attempts(times - 1, is_new=standing.attempts.is_new)
        return standing.attempts

    def begin_attempt(self, partition: Partition, offset: int, earlier: Attempts) -> Note:
        """Count one attempt more. Returns its note: call `note` until it is taken, then hand out the first record."""
        self._attempts[partition] = earlier.times + 1
        if earlier.is_new:
            self._new[partition] = offset
        else:
            self.has_served = True
        self._found[partition] = Note(offset, earlier)
        note = self._last_sent[partition] = Note(offset, earlier._replace(times=earlier.times + 1))
        return note

    def note(self, partition: Partition, note: Note) -> bool:
        return self._notes.note(partition, note)

    def note_start(self, partition: Partition, offset: int) -> bool:
        """Commit where a partition without an offset begins. To be called until it returns True: the group has it."""
        return self._notes.note(partition, Note(offset, NEW))

    def stand_back(self, instead: Mapping[Partition, int | None]) -> None:
        """Commit where new partitions began, or the offset in `instead`, for a next worker; None commits nothing."""
        for partition, began in self._new.items():
            if (offset := instead.get(partition, began)) is not None:
                self._send(partition, Note(offset, NEW))

    def note_isolated_run(self, partition: Partition, offset: int) -> bool:
        """Note that this record is about to run alone. To be called until it returns True: the group has the note."""
        if (attempts := self._attempts.get(partition)) is None:
            return False
        self._isolated[partition] = offset
        note = self._last_sent[partition] = Note(offset, Attempts(attempts, is_isolated=True))
        return self._notes.note(partition, note)

    def withdraw_note(self, partition: Partition, offset: int) -> bool:
        """Note that the isolated run was broken off. This note is sent after the run's own note, and replaces it."""
        note = Note(offset, Attempts(self._attempts.get(partition, 0)))
        if self._last_sent.get(partition) == note:
            return self._notes.note(partition, note)
        self._send(partition, note)
        return False

    def clear_note(self, partition: Partition, next_offset: int, patience: float) -> None:
        """See `IsolationNotes`. The question follows the commit on one connection, so its answer comes after it.

        The client gives up a commit if the coordinator is loading or the epoch is stale: then it is sent again.
        """
        if (offset := self._isolated.get(partition)) is None:
            return
        send = partial(self.commit, {partition: next_offset})
        if next_offset == offset:
            send = partial(self._send, partition, Note(offset, Attempts(self._attempts.get(partition, 0))))
            send()
        give_up_at = self._clock() + patience
        while (left := give_up_at - self._clock()) > 0 and self.standings.is_isolated(partition, offset, left):
            time.sleep(RETRY_AFTER)
            send()

    def withdraw_notes(self, offsets: Mapping[Partition, int]) -> bool:
        """Withdraw the notes of records just below these next offsets, as `withdraw_note` does."""
        if not self._isolated:
            return True
        ran = [(p, offset - 1) for p, offset in offsets.items() if self._isolated.get(p) == offset - 1]
        withdrawn = [self.withdraw_note(partition, offset) for partition, offset in ran]
        return all(withdrawn)

    def _send(self, partition: Partition, note: Note) -> None:
        self._last_sent[partition] = note
        self._notes.send(partition, note)

    def has_note_under_way(self, partitions: Collection[Partition]) -> bool:
        return self._notes.is_under_way(partitions)

    def forget(self, partitions: Sequence[Partition]) -> None:
        self._notes.forget(partitions)
        for partition in partitions:
            self._attempts.pop(partition, None)
            self._isolated.pop(partition, None)
            self._new.pop(partition, None)
