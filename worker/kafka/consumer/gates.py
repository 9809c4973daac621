"""The state of each partition between its assignment and its first record, and while it is to be read again.

    assigned ──▶ asleep ──first record──▶ held: [ committed()? ──▶ note the attempt ] ──▶ flows ──rewind──▶ shut
                    ▲                       not where the group stands ──▶ shut                               │
                    └───────────────────── [ committed()? seek there ] ◀──────────────────────────────────────┘

A partition's first records are held until the group has taken the note of this attempt. So a record that ends the
process at once is counted too, and no note can arrive late and undo a commit. A shut partition gives nothing: records
on their way are dropped. It goes on at the group's offset, or where it began in this assignment, never where the reset
policy says.

- If the group does not tell a partition's offset at its assignment (`rebalances.py`), the partition is moved only after
  a record of it came: while the client looks up where a log begins it silently undoes a seek (librdkafka 2.16).
- A group's offset beyond the partition's end belongs to records that are gone, as when their topic was made anew. It is
  ignored: rewound to it, the partition would begin again and again.
- Under `latest` a partition without an offset is shut until its starting offset is committed. So a death loses no
  record that was published after that.
- While a transaction of an earlier assignment ends, a partition that came back is neither asked about nor noted: a note
  between the two halves of the transaction's commit would undo the commit (seen 2026).

While all partitions flow the group is asked nothing, and a poll costs 0.04 µs more than without gates (2026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from worker.core.records import Partition, Record, Suspect
from worker.kafka.client.errors import ClientLog, words_of
from worker.kafka.consumer.flow import By, Flowing, HeldRecords, Pauses
from worker.kafka.consumer.spoiled_batches import SpoiledBatches
from worker.kafka.offsets.group_offsets import SUSPECT_FROM, KafkaOffsets, Note
from worker.kafka.offsets.standings import NOTHING, GroupStanding
from worker.ports import Assignments

# Seconds from an unanswered question to the next: the loop stands still during each.
ASK_AGAIN_AFTER = 1.0

# Seconds of the longest poll while records are held: the answer that they wait for comes in a poll.
WAKING_SLICE = 0.005


@dataclass(slots=True)
class _Gate:
    """The state of one of our partitions."""

    begun: int = 0  # the group's offset when we began, 0 if the group has not told it
    first: int | None = None  # the first offset met in this assignment
    is_asleep: bool = True  # no record was handed out yet
    is_shut: bool = False
    is_adrift: bool = False  # shut, and the client may be looking up where the log begins
    start: int | None = None  # the offset that a shut partition must commit before it gives records
    wanted: Note | None = None  # the note that the group must take before held records are handed out


class Gates:
    """Decides which of our partitions may give records. Owned by the source."""

    def __init__(  # noqa: PLR0913  # what the source owns, and what the gates tell it to do
        self,
        consumer: Consumer,
        flowing: Flowing,
        held: HeldRecords,
        offsets: KafkaOffsets,
        pauses: Pauses,
        spoiled: SpoiledBatches,
        log: ClientLog,
        *,
        starts_at_end: bool,
        clock: Callable[[], float],
    ) -> None:
        self._consumer = consumer
        self._flowing = flowing
        self._held = held
        self._offsets = offsets
        self._standings = offsets.standings
        self._pauses = pauses
        self._spoiled = spoiled
        self._log = log
        self._starts_at_end = starts_at_end
        self._clock = clock
        self._gates: dict[Partition, _Gate] = {}
        self._closed: dict[Partition, _Gate] = {}  # shut, or with held records: a poll looks at these alone
        self.without_start: set[Partition] = set()  # assigned under `latest`, without a starting offset yet
        self._ask_at = 0.0

    @property
    def is_waiting(self) -> bool:
        return bool(self._closed or self._held.ready)

    def patience(self, timeout: float) -> float:
        return min(timeout, WAKING_SLICE) if self._held.held else timeout

    def assigned(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._gates[partition] = gate = _Gate()
            if self._starts_at_end:
                self.without_start.add(partition)
                self._shut(partition, gate)

    def begin(self, partition: Partition, offset: int) -> None:
        """Note the offset from which the partition is read: the group's, at its assignment."""
        if (gate := self._gates.get(partition)) is not None:
            gate.begun = offset

    def begun(self, partition: Partition) -> int:
        """The group's offset when we began; 0 if the group has not told it."""
        gate = self._gates.get(partition)
        return 0 if gate is None else gate.begun

    def forget(self, partitions: Sequence[Partition]) -> None:
        """Forget partitions that are not ours any more, here and in all parts that the gates work with."""
        self._pauses.forget(partitions)
        self._offsets.forget(partitions)
        for partition in partitions:
            self._spoiled.forget(partition)
            if (gate := self._gates.pop(partition, None)) is not None:
                self._drop(partition, gate)
                self._closed.pop(partition, None)
                self.without_start.discard(partition)

    def at_rest(self) -> Sequence[Partition]:
        """Our partitions without waiting records: every record that came was handed out."""
        return () if self._held.ready else [partition for partition in self._gates if partition not in self._closed]

    def holds(self, partition: Partition) -> bool:
        return partition in self._gates

    def is_shut(self, partition: Partition) -> bool:
        """True if the partition's records are dropped."""
        return partition in self._closed and self._closed[partition].is_shut

    def rewind(self, partitions: Sequence[Partition]) -> None:
        """Shut our partitions among these until we know the group's offset."""
        for partition in partitions:
            if (gate := self._gates.get(partition)) is not None:
                self._drop(partition, gate)
                self._pauses.release(partition, By.LOOP)
                self._shut(partition, gate)

    def rewind_adrift(self, partitions: Sequence[Partition]) -> None:
        """Rewind partitions that the client reads from their beginning, whatever the group's offset is."""
        self.rewind(partitions)
        for partition in partitions:
            if (gate := self._gates.get(partition)) is not None:
                gate.is_adrift = True

    def attend(self, assignments: Assignments) -> None:
        """Hand out held records and open shut partitions, if the group has answered. Tells of suspects."""
        if self._clock() >= self._ask_at:
            self._ask(assignments)
        for partition, gate in list(self._closed.items()):
            if gate.wanted is not None and self._offsets.note(partition, gate.wanted):
                self._wake(partition, gate)
            if gate.start is not None and self._offsets.note_start(partition, gate.start):
                self._go_on(partition, gate, gate.start)
            if gate.is_shut and not gate.is_adrift:  # a fetch would be in vain
                self._pauses.stop(partition, By.SOURCE)

    def admit(self, records: Sequence[Record]) -> Sequence[Record]:
        """Pick the records that may be handed out, if some partitions do not flow; the others are held or dropped."""
        self._flowing.strangers.clear()
        admitted: list[Record] = []
        for record in records:
            if self._flowing.has(record.partition):
                admitted.append(record)
            elif (gate := self._gates.get(record.partition)) is not None:
                self._hold(record, gate)
        return admitted

    def _hold(self, record: Record, gate: _Gate) -> None:
        if gate.first is None:
            gate.first = record.offset
        if gate.is_shut:
            gate.is_adrift = False
            return
        self._closed[record.partition] = gate
        if self._held.hold(record):
            self._pauses.stop(record.partition, By.SOURCE)

    def _shut(self, partition: Partition, gate: _Gate) -> None:
        gate.is_shut = True
        self._spoiled.rewind(partition)
        self._closed[partition] = gate

    def _open(self, partition: Partition, gate: _Gate) -> None:
        """Let the partition be fetched again, and flow unless it is asleep."""
        del self._closed[partition]
        self._pauses.release(partition, By.SOURCE)
        if not gate.is_asleep:
            self._flowing.let(partition)

    def _drop(self, partition: Partition, gate: _Gate) -> None:
        self._flowing.stop(partition)
        if self._held.drop(partition):
            self._pauses.release(partition, By.SOURCE)
        gate.wanted = None

    def _ask(self, assignments: Assignments) -> None:
        """Ask the group for the offset of each partition that gives nothing until we know it."""
        asked = [
            partition
            for partition, gate in self._closed.items()
            if gate.wanted is None
            and gate.start is None
            and not gate.is_adrift
            and not assignments.is_in_doubt(partition)
        ]
        if asked and not self._learn(self._standings.ask(asked), assignments):
            self._ask_at = self._clock() + ASK_AGAIN_AFTER

    def _learn(self, standings: Mapping[Partition, GroupStanding], assignments: Assignments) -> bool:
        """Go on at the group's offsets. False if an offset or an end is not known yet."""
        hanging = [partition for partition, standing in standings.items() if self._hangs_on_end(partition, standing)]
        ends = self._standings.ends(hanging)
        is_known = bool(standings)
        suspects: list[Suspect] = []
        for partition, standing in standings.items():
            if self.is_shut(partition):
                is_known = self._find(partition, standing, ends.get(partition)) and is_known
            else:
                is_known = self._begin_attempt(partition, standing, ends.get(partition), suspects) and is_known
        if suspects:
            assignments.suspected(suspects)
        return is_known

    def _hangs_on_end(self, partition: Partition, standing: GroupStanding) -> bool:
        """True if the next step for this partition may depend on its end."""
        gate = self._closed[partition]
        if gate.is_shut:
            return self._starts_at_end and standing.offset is None and gate.first is None
        is_behind = standing.offset is not None and self._held.first(partition) < standing.offset
        return is_behind or standing.attempts.times >= SUSPECT_FROM

    def _begin_attempt(
        self, partition: Partition, standing: GroupStanding, end: int | None, suspects: list[Suspect]
    ) -> bool:
        """Choose the note that must be taken before held records are handed out. False if the end is not known yet."""
        first = self._held.first(partition)
        if standing.offset is not None and first < standing.offset:
            if end is None:
                return False
            if standing.offset <= end:  # committed by an earlier assignment after the client had asked where to begin
                self.rewind([partition])
                return True
            standing = NOTHING  # beyond the end: its records are gone
        offset = first if standing.offset is None else standing.offset
        earlier = self._offsets.earlier_attempts(partition, offset, standing)
        if earlier.times >= SUSPECT_FROM:
            if end is None:
                return False
            suspects.append(Suspect(partition, earlier.times, standing.offset if earlier.is_isolated else None, end))
        self._closed[partition].wanted = self._offsets.begin_attempt(partition, offset, earlier)
        return True

    def _wake(self, partition: Partition, gate: _Gate) -> None:
        gate.wanted, gate.is_asleep = None, False
        self._held.let_go(partition)
        self._open(partition, gate)

    def _find(self, partition: Partition, standing: GroupStanding, end: int | None) -> bool:
        """Go on with a shut partition at the group's offset. False if its starting offset is not known yet."""
        gate = self._closed[partition]
        if standing.offset is None and self._starts_at_end:
            # Begin with the first record that came meanwhile, else at the end; `attend` commits that offset first.
            gate.start = end if gate.first is None else gate.first
            return gate.start is not None
        if standing.offset is not None:
            gate.begun = standing.offset
        self._go_on(partition, gate, gate.first if standing.offset is None else standing.offset)
        return True

    def _go_on(self, partition: Partition, gate: _Gate, offset: int | None) -> None:
        """Read on from `offset`; None: from where the client is, as nothing was handed out."""
        if offset is not None:
            try:
                self._consumer.seek(TopicPartition(*partition, self._spoiled.passed(partition, offset)))
            except KafkaException as error:  # not yet, or not any more
                self._log.tell("seek", f"{partition}: the client cannot go to {offset} now: {words_of(error)}")
                return
        gate.is_shut, gate.start = False, None
        self.without_start.discard(partition)
        self._open(partition, gate)
