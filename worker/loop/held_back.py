"""The records that wait for a schema. Their partition stands from the first of them on; other partitions go on.

    reading.waiting ─▶ kept here ──schema came──▶ read again
                           └── for a second, or too much ──▶ left to Kafka ──schema came──▶ fetched, read again

A new schema comes within milliseconds, and a partition that is paused and fetched again stands for up to half a second:
so its records wait here at first. A registry that is away may be so for hours, so a backlog belongs in Kafka.

A record that waits is not taken: the ledger does not know it, no commit passes it, and nothing is owed for it. So a
partition that leaves, or is read again, only drops it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from worker.core.records import Partition, Record
from worker.core.schemas import SchemaName
from worker.ports import Events, Schemas, Source

# Seconds after which a wait is one for an operator: its records are left to Kafka, and it is told.
PATIENCE = 1.0
# The most records that wait here, and the most of their bytes, of all partitions: some polls of small records.
MOST_RECORDS, MOST_BYTES = 8192, 16 * 1024 * 1024
# Seconds between two looks whether a schema has come: while records wait here, and while all of them are in Kafka.
SOON, LATER = 0.002, 0.1


@dataclass(slots=True)
class _Held:
    """One partition that stands. It has no `records` once they are left to Kafka; `size` is their bytes."""

    schema: SchemaName
    since: float
    records: list[Record]
    size: int
    is_told: bool = False


class HeldBack:
    """Owns the records that wait for a schema, and knows which partitions stand for one."""

    def __init__(self, source: Source, schemas: Schemas | None, events: Events) -> None:
        """`schemas` None: no reader waits for any."""
        self._source = source
        self._schemas = schemas
        self._events = events
        self._held: dict[Partition, _Held] = {}
        self._look_at = 0.0

    def __len__(self) -> int:
        """The number of partitions that stand."""
        return len(self._held)

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._held

    @property
    def slice(self) -> float:
        """The most seconds until the next look whether a schema has come."""
        return SOON if any(held.records for held in self._held.values()) else LATER

    def hold(self, records: Sequence[Record], schema: SchemaName, now: float) -> None:
        """Let the partition of these records stand from the first of them on, which needs this schema."""
        partition = records[0].partition
        self._held[partition] = _Held(schema, now, list(records), sum(map(_size, records)))
        self._look_at = min(self._look_at, now + SOON)
        self._bound({partition})

    def sift(self, records: Sequence[Record]) -> list[Record]:
        """Let records that came of partitions that stand wait, too. Returns the other records."""
        others: list[Record] = []
        grown: set[Partition] = set()
        for record in records:
            held = self._held.get(record.partition)
            if held is None:
                others.append(record)
            elif held.records:  # else it was on its way when the rest was left to Kafka, and comes again
                held.records.append(record)
                held.size += _size(record)
                grown.add(record.partition)
        self._bound(grown)
        return others

    def ready(self, now: float) -> Sequence[Record]:
        """The records whose schemas came, or turned out not to be there. Partitions that stand for long are told of."""
        assert self._schemas is not None
        if now < self._look_at:
            return ()
        self._look_at = now + self.slice
        ready: list[Record] = []
        for partition, held in list(self._held.items()):
            if self._schemas.get(held.schema) is not None:
                ready += self._let_go(partition, held, now)
            elif now - held.since >= PATIENCE and not held.is_told:
                held.is_told = True
                self._events.waits_for_schema(partition, str(held.schema), self._schemas.trouble)
                self._leave_to_kafka(partition, held)
        return ready

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the records of partitions that leave, or are read again from the group's offset."""
        for partition in partitions:
            self._held.pop(partition, None)

    def _let_go(self, partition: Partition, held: _Held, now: float) -> Sequence[Record]:
        del self._held[partition]
        if not held.records:
            self._source.release(partition)
        if held.is_told:
            self._events.goes_on(partition, now - held.since)
        return held.records

    def _bound(self, grown: Collection[Partition]) -> None:
        """Leave the records of these partitions to Kafka if too much waits here."""
        for partition in grown:
            count = sum(len(held.records) for held in self._held.values())
            if count > MOST_RECORDS or sum(held.size for held in self._held.values()) > MOST_BYTES:
                self._leave_to_kafka(partition, self._held[partition])

    def _leave_to_kafka(self, partition: Partition, held: _Held) -> None:
        if held.records:
            self._source.hold(partition, held.records[0].offset)
            held.records, held.size = [], 0


def _size(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers
