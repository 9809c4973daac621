"""Where each partition stands between its assignment and its first record, and while it is to be read again.

    assigned ──▶ unmarked ──first record──▶ [ committed()? mark the attempt ] ──▶ flows ──rewind──▶ shut
                     ▲                          no answer ──▶ shut                                    │
                     └────────────────── [ committed()? seek there ] ◀────────────────────────────────┘

A shut partition gives nothing: what of it is on its way is dropped, and it goes on where the group's offset stands, or
where it began in this assignment, never where the reset policy says. Without any offset under `latest` it is shut from
the beginning, until the place where it starts is committed: what is published afterwards is not lost by a death.

Questions to the group block the loop, so each has a time limit, and none is asked while all partitions flow. Measured
with a broker on the same two cores, busy: the first question of an assignment 1.5 ms (median), a rewind 7 to 16 ms to
its first record beside a backlog. At the end of a topic that is 0.43 s, for the client goes on only when the broker has
answered the fetch under way, after `fetch.wait.max.ms`. A poll costs 0.04 µs more than without, idle partitions or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from worker.core.records import Partition, Record, Suspect
from worker.kafka.attempts import NONE, SUSPECT_FROM, Attempts, read_attempts
from worker.kafka.client_log import ClientLog
from worker.kafka.flowing import Flowing
from worker.kafka.marks import Mark, Marks
from worker.kafka.pauses import By, Pauses

# The client has just asked the same to know where to fetch, so the answer is near.
FIRST_TIMEOUT = 1.0

# Later, the loop has other partitions to serve: at most so long a wait, and so long until the next one, seconds.
AGAIN_TIMEOUT = 0.5
AGAIN_AFTER = 0.5


class _Standing(NamedTuple):
    """What the group has of a partition. `offset` None: nothing yet."""

    offset: int | None
    attempts: Attempts


class Gates:
    """Which partitions are held and may give records. Owned by the source."""

    def __init__(
        self,
        consumer: Consumer,
        flowing: Flowing,
        marks: Marks,
        pauses: Pauses,
        log: ClientLog,
        *,
        starts_at_end: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._flowing = flowing
        self._marks = marks
        self._pauses = pauses
        self._log = log
        self._starts_at_end = starts_at_end
        self._clock = clock
        self._first: dict[Partition, int | None] = {}  # of what is held: the first offset met in this assignment
        self._attempts: dict[Partition, int] = {}  # of what was marked: the one under way
        self._unmarked: set[Partition] = set()
        self._starts: dict[Partition, int] = {}  # to be committed before anything comes
        self._again_at = 0.0
        self.shut: set[Partition] = set()

    def assigned(self, partitions: Iterable[Partition]) -> None:
        """They are ours."""
        for partition in partitions:
            self._first[partition] = None
            self._unmarked.add(partition)
            if self._starts_at_end:
                self.shut.add(partition)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """They are not ours any more."""
        for partition in partitions:
            self._flowing.stop(partition)
            self._first.pop(partition, None)
            self._attempts.pop(partition, None)
            self._starts.pop(partition, None)
            self._unmarked.discard(partition)
            self.shut.discard(partition)

    def holds(self, partition: Partition) -> bool:
        """Whether it is ours."""
        return partition in self._first

    def rewind(self, partitions: Iterable[Partition]) -> None:
        """From now on nothing comes of those that are ours, until we know where the group stands."""
        for partition in partitions:
            if partition in self._first:
                self._flowing.stop(partition)
                self._pauses.release(partition, By.LOOP)
                self.shut.add(partition)

    def put_on_trial(self, partition: Partition, offset: int) -> bool:
        """Note with the group that this record is about to run alone; see `Source`."""
        attempts = self._attempts.get(partition)
        return attempts is not None and self._marks.note(partition, Mark(offset, Attempts(attempts, is_trial=True)))

    def acquit(self, partition: Partition, offset: int) -> None:
        """Note that its trial was broken off; see `Source`. Sent behind that note, it takes its place."""
        self._marks.send({partition: Mark(offset, Attempts(self._attempts.get(partition, 0)))})

    def reopen(self) -> None:
        """Let those go on of which it is known where."""
        for partition, offset in list(self._starts.items()):
            if self._marks.note(partition, Mark(offset, NONE)):
                self._go_on(partition, offset)
        asked = [partition for partition in self.shut if partition not in self._starts]
        if asked and self._clock() >= self._again_at:
            self._find(asked)
        for partition in self.shut:  # not to be read in vain meanwhile
            self._pauses.stop(partition, By.SOURCE)

    def admit(self, records: Sequence[Record], suspected: Callable[[Sequence[Suspect]], None]) -> Sequence[Record]:
        """What may be handed out of these, among which are some of partitions that do not flow."""
        self._flowing.strangers.clear()
        first = {record.partition: record.offset for record in reversed(records)}
        for partition, offset in first.items():
            if partition in self._first and self._first[partition] is None:
                self._first[partition] = offset
        new = [partition for partition in first if partition in self._unmarked and partition not in self.shut]
        if new and (suspects := self._learn(new, first)):
            suspected(suspects)
        return [record for record in records if self._flowing.has(record.partition)]

    def _learn(self, new: Sequence[Partition], first: Mapping[Partition, int]) -> Sequence[Suspect]:
        """Mark the attempt that begins with the first record of each. Returns those that saw too many."""
        standings = self._ask(new, FIRST_TIMEOUT)
        marks: dict[Partition, Mark] = {}
        suspects: list[Suspect] = []
        for partition in new:
            standing = standings.get(partition)
            if standing is None or not self._is_clear(partition, standing, suspects):
                self.rewind([partition])
                continue
            times, is_trial = standing.attempts
            offset = first[partition] if standing.offset is None else standing.offset
            # A trial stays one until it is settled: this process may die before it is.
            marks[partition] = Mark(offset, Attempts(times + 1, is_trial))
            self._attempts[partition] = times + 1
            self._unmarked.discard(partition)
            self._flowing.let(partition)
        if marks:
            self._marks.send(marks)
        return suspects

    def _is_clear(self, partition: Partition, standing: _Standing, suspects: list[Suspect]) -> bool:
        """Whether all is known of it; a suspect's end is, below which all lies that can have been in flight."""
        times, is_trial = standing.attempts
        if times < SUSPECT_FROM:
            return True
        if (until := self._end(partition)) is None:
            return False
        suspects.append(Suspect(partition, times, standing.offset if is_trial else None, until))
        return True

    def _find(self, asked: Sequence[Partition]) -> None:
        standings = self._ask(asked, AGAIN_TIMEOUT)
        is_known = len(standings) == len(asked)
        for partition, standing in standings.items():
            if standing.offset is None and self._starts_at_end:
                is_known = is_known and self._start(partition)
            else:
                self._go_on(partition, self._first[partition] if standing.offset is None else standing.offset)
        if not is_known:
            self._again_at = self._clock() + AGAIN_AFTER

    def _start(self, partition: Partition) -> bool:
        """Begin at the end, or with what came since we asked in vain, and commit that first."""
        start = self._first[partition]
        if start is None and (start := self._end(partition)) is None:
            return False
        self._starts[partition] = start
        self._marks.note(partition, Mark(start, NONE))
        return True

    def _go_on(self, partition: Partition, offset: int | None) -> None:
        """Read on from there; None: where the client is, having handed out nothing."""
        if offset is not None:
            try:
                self._consumer.seek(TopicPartition(*partition, offset))
            except KafkaException as error:  # not yet, or not any more
                self._log.tell("seek", f"{partition}: the client cannot go to {offset} now: {error}")
                return
        self._starts.pop(partition, None)
        self.shut.discard(partition)
        self._pauses.release(partition, By.SOURCE)
        if partition not in self._unmarked:
            self._flowing.let(partition)

    def _ask(self, partitions: Sequence[Partition], timeout: float) -> Mapping[Partition, _Standing]:
        """Where the group stands; of those it does not tell of, nothing."""
        try:
            found = self._consumer.committed([TopicPartition(*partition) for partition in partitions], timeout)
        except KafkaException as error:
            self._log.tell("committed", f"the group does not tell its offsets, {len(partitions)} wait: {error}")
            return {}
        return {
            self._flowing.named(at.topic, at.partition): _Standing(
                at.offset if at.offset >= 0 else None, read_attempts(at.metadata) or NONE
            )
            for at in found
            if at.error is None
        }

    def _end(self, partition: Partition) -> int | None:
        """Where the partition ends for us: at the first open transaction, if there is one."""
        try:
            return self._consumer.get_watermark_offsets(TopicPartition(*partition), AGAIN_TIMEOUT)[1]
        except KafkaException as error:
            self._log.tell("end", f"the broker does not tell where {partition} ends: {error}")
            return None
