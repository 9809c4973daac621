"""The state of each partition between its assignment and its first record, and while it is to be read again.

    assigned ──▶ asleep ──first record──▶ flows ──rewind──▶ shut: [ committed()? seek there ] ──▶ flows
       └─ where it begins is not sure ──▶ shut: [ committed()? seek there ] ──▶ asleep

A shut partition gives nothing: records on their way are dropped. It goes on at the group's offset, or where it began in
this assignment, never where the reset policy says.

- If the group does not tell a partition's offset at its assignment (`rebalances.py`), the partition is moved only after
  a record of it came: while the client looks up where a log begins it silently undoes a seek (librdkafka 2.16).
- A group's offset beyond the partition's end belongs to records that are gone, as when their topic was made anew. The
  client begins by the reset policy instead.
- Under `latest` a partition is shut until the place where it begins is committed, if the group has no offset, or one
  beyond the end. So a death loses no record that was published after that.
- A partition that is held is shut, too: its first record waits for something that is not in Kafka. When it is released,
  it goes on with that record.
- While a transaction of an earlier assignment ends, a partition that came back is shut: the group's offset is not known
  yet.

While all partitions flow the group is asked nothing, and a poll costs 0.04 µs more than without gates (2026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from worker.core.records import Partition, Record
from worker.kafka.client.errors import ClientLog, words_of
from worker.kafka.consumer.flow import By, Flowing, Pauses
from worker.kafka.consumer.spoiled_batches import SpoiledBatches
from worker.kafka.offsets.group_offsets import KafkaOffsets
from worker.kafka.offsets.standings import GroupStanding
from worker.ports import Assignments

# Seconds from an unanswered question to the next: the loop stands still during each.
ASK_AGAIN_AFTER = 1.0


@dataclass(slots=True)
class _Gate:
    """The state of one of our partitions."""

    begun: int = 0  # the group's offset when we began, 0 if the group has none, or has not told it
    is_new: bool = False  # the group had committed no answer when we began
    first: int | None = None  # the first offset met in this assignment
    is_asleep: bool = True  # no record was handed out yet
    is_adrift: bool = False  # shut, and the client may be looking up where the log begins
    start: int | None = None  # the offset that a shut partition must commit before it gives records
    held_at: int | None = None  # the record to go on with, while it is held, and until the client has gone there
    is_held: bool = False


class Gates:
    """Decides which of our partitions may give records. Owned by the source."""

    def __init__(  # noqa: PLR0913  # what the source owns, and what the gates tell it to do
        self,
        consumer: Consumer,
        flowing: Flowing,
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
        self._offsets = offsets
        self._standings = offsets.standings
        self._pauses = pauses
        self._spoiled = spoiled
        self._log = log
        self._starts_at_end = starts_at_end
        self._clock = clock
        self._gates: dict[Partition, _Gate] = {}
        self._shut: dict[Partition, _Gate] = {}  # a poll looks at these alone
        self._ask_at = 0.0

    @property
    def is_waiting(self) -> bool:
        return bool(self._shut)

    @property
    def starts_awaited(self) -> int:
        """The number of partitions without a starting offset yet, which happens only under `latest`."""
        return sum(gate.is_asleep for gate in self._shut.values()) if self._starts_at_end else 0

    def assigned(self, partitions: Iterable[Partition]) -> None:
        """Take new partitions. Under `latest` none begins before the group told its offset (`begin`)."""
        for partition in partitions:
            self._gates[partition] = gate = _Gate()
            if self._starts_at_end:
                self._close(partition, gate)

    def begin(self, partition: Partition, standing: GroupStanding | None, *, is_in_doubt: bool) -> None:
        """Begin a new partition where the group stood at its assignment; None: the group did not tell.

        `is_in_doubt`: the group may stand further on by now, so it is asked again before a record is handed out.
        """
        gate = self._gates[partition]
        if standing is not None:
            self._found(gate, standing)
        has_offset = standing is not None and standing.offset is not None
        if is_in_doubt or standing is None:
            self._close(partition, gate)
            gate.is_adrift = not has_offset and not self._starts_at_end
        elif has_offset and self._starts_at_end:
            self._open(partition, gate)

    def begun(self, partition: Partition) -> int:
        """The group's offset when we began; 0 if the group has none, or has not told it."""
        gate = self._gates.get(partition)
        return 0 if gate is None else gate.begun

    def forget(self, partitions: Sequence[Partition]) -> None:
        """Forget partitions that are not ours any more, here and in all parts that the gates work with."""
        self._pauses.forget(partitions)
        self._offsets.forget(partitions)
        for partition in partitions:
            self._spoiled.forget(partition)
            if self._gates.pop(partition, None) is not None:
                self._flowing.stop(partition)
                self._shut.pop(partition, None)

    def at_rest(self) -> Sequence[Partition]:
        """Our partitions of which every record that came was handed out."""
        return [partition for partition in self._gates if partition not in self._shut]

    def holds(self, partition: Partition) -> bool:
        return partition in self._gates

    def is_shut(self, partition: Partition) -> bool:
        """True if the partition's records are dropped."""
        return partition in self._shut

    def rewind(self, partitions: Sequence[Partition]) -> None:
        """Shut our partitions among these until we know the group's offset."""
        for partition in partitions:
            if (gate := self._gates.get(partition)) is not None:
                self._close(partition, gate)

    def hold(self, partition: Partition, offset: int) -> None:
        """Shut the partition, if it is ours, until it is released or rewound."""
        if (gate := self._gates.get(partition)) is not None:
            self._close(partition, gate)
            gate.held_at, gate.is_held = offset, True

    def release(self, partition: Partition) -> None:
        """Let a held partition go on with its first record that was held."""
        if (gate := self._gates.get(partition)) is not None:
            gate.is_held = False

    def attend(self, assignments: Assignments) -> None:
        """Open shut partitions, if the group has answered, or if they are released."""
        if self._clock() >= self._ask_at:
            self._ask(assignments)
        for partition, gate in list(self._shut.items()):
            if gate.held_at is not None and not gate.is_held:
                self._go_on(partition, gate, gate.held_at)
            if gate.start is not None and self._offsets.note_start(partition, gate.start):
                gate.begun = gate.start
                self._go_on(partition, gate, gate.start)
            if partition in self._shut and not gate.is_adrift:  # a fetch would be in vain
                self._pauses.stop(partition, By.GATES)

    def admit(self, records: Sequence[Record]) -> Sequence[Record]:
        """Pick the records that may be handed out, if some partitions do not flow; the others are dropped."""
        self._flowing.strangers.clear()
        return [record for record in records if self._flowing.has(record.partition) or self._wakes(record)]

    def _wakes(self, record: Record) -> bool:
        """Meet a record of a partition that does not flow. Returns True if it flows from this record on."""
        gate = self._gates.get(record.partition)
        if gate is None:
            return False
        if gate.first is None:
            gate.first = record.offset
        if record.partition in self._shut:
            gate.is_adrift = False
            return False
        if self._starts_at_end and record.offset < gate.begun:  # the group's offset lies beyond the end
            self._close(record.partition, gate)
            gate.start = record.offset
            return False
        gate.is_asleep = False
        self._offsets.begin(record.partition, record.offset, is_new=gate.is_new)
        self._flowing.let(record.partition)
        return True

    def _close(self, partition: Partition, gate: _Gate) -> None:
        self._flowing.stop(partition)
        self._spoiled.rewind(partition)
        gate.held_at, gate.is_held = None, False
        self._shut[partition] = gate

    def _open(self, partition: Partition, gate: _Gate) -> None:
        """Let the partition be fetched again, and flow unless it is asleep."""
        gate.is_adrift, gate.start, gate.held_at = False, None, None
        del self._shut[partition]
        self._pauses.release(partition, By.GATES)
        if not gate.is_asleep:
            self._flowing.let(partition)

    def _ask(self, assignments: Assignments) -> None:
        """Ask the group for the offset of each partition that gives nothing until we know it."""
        asked = [
            partition
            for partition, gate in self._shut.items()
            if gate.start is None
            and gate.held_at is None
            and (gate.is_new or not gate.is_adrift)
            and not assignments.is_in_doubt(partition)
        ]
        if asked and not self._learn(self._standings.ask(asked)):
            self._ask_at = self._clock() + ASK_AGAIN_AFTER

    def _learn(self, standings: Mapping[Partition, GroupStanding]) -> bool:
        """Go on where the group stands. False if that, or where a partition begins, is not known yet."""
        is_known = bool(standings)
        without = [partition for partition, standing in standings.items() if standing.offset is None]
        starting = [at for at in without if self._starts_at_end and self._shut[at].first is None]
        ends = self._standings.ends(starting)
        for partition, standing in standings.items():
            gate = self._shut[partition]
            self._found(gate, standing)
            if gate.is_adrift and standing.offset is not None:
                gate.is_new = False  # so it is asked about again only when a record has come
            elif standing.offset is not None:
                self._go_on(partition, gate, standing.offset)
            elif self._starts_at_end:
                # Begin with the first record that came meanwhile, else at the end; `attend` commits that offset first.
                gate.start = ends.get(partition) if gate.first is None else gate.first
                is_known = is_known and gate.start is not None
            else:
                self._go_on(partition, gate, gate.first)
        return is_known

    def _found(self, gate: _Gate, standing: GroupStanding) -> None:
        gate.is_new = standing.is_new
        if standing.offset is not None:
            gate.begun = standing.offset

    def _go_on(self, partition: Partition, gate: _Gate, offset: int | None) -> None:
        """Read on from `offset`; None: from where the client is, as nothing was handed out."""
        if offset is not None:
            try:
                self._consumer.seek(TopicPartition(*partition, self._spoiled.passed(partition, offset)))
            except KafkaException as error:  # not yet, or not any more
                self._log.tell("seek", f"{partition}: the client cannot go to {offset} now: {words_of(error)}")
                return
        self._open(partition, gate)
