"""One structure for three things: records owed an answer, the order in which answers leave, how far a commit may go.

Each partition has a line of places, one per record, in the order received:

      settled  │  sent: its answer is on the way  │  held: no answer yet, or an earlier one is missing
    ───────────┼──────────────────────────────────┼──────────────────────────────────────────────▶ received
           committable                      next to leave

An answer leaves when every earlier record of its partition has one. A commit may reach the first record without an
acknowledged answer. Both follow the records *received*, never `offset + 1`: compaction and transaction markers leave
gaps. To forget a partition drops its line, so work that finishes late finds no line and is dropped. `order_by_key.py`
has the ledgers whose answers need not wait for all earlier ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from worker.core.records import Line, Outcome, Partition, Place, Record, Request


class OffsetLedger:
    """The lines of all assigned partitions; `records`, `rows`, `size` (bytes) count records taken and not settled."""

    def __init__(self) -> None:
        self._lines: dict[Partition, Line] = {}
        self.records = 0
        self.rows = 0
        self.size = 0

    def track(self, record: Record, rows: int, size: int, now: float, records: int = 1) -> Place:
        """Take a record: from now on it is owed an answer, and no commit passes it before the answer is settled.

        If several `records` travel as one, `record` is the last of them. 0 `records` gives only a place in the line.
        """
        partition = record.partition
        line = self._lines.get(partition)
        if line is None:
            line = self._lines[partition] = Line(partition)
        if record.offset < line.committed:  # its topic was deleted and created again, without a rebalance
            line.committed = line.next_offset = -1
        place = Place(line, record.offset, rows, size, now, records, record.timestamp_ms)
        line.held.append(place)
        self.records += records
        self.rows += rows
        self.size += size
        return place

    def answer(self, outcomes: Iterable[tuple[Place, Outcome]]) -> Sequence[Place]:
        """Note the outcomes of records. Returns the places whose outcomes may leave now, in order within each line."""
        lines: dict[Line, None] = {}
        for place, outcome in outcomes:
            place.outcome = outcome
            lines[place.line] = None
        leaving: list[Place] = []
        for line in lines:
            held, already = line.held, len(leaving)
            while held and held[0].outcome is not None:
                leaving.append(held.popleft())
            line.sent.extend(leaving[already:])
        return leaving

    def weigh(self, place: Place, size: int) -> None:
        """Count `size` bytes for the place from now on: the answer on its way instead of the request."""
        self.size += size - place.size
        place.size = size

    def settle(self, places: Iterable[Place]) -> None:
        """Note that all messages of these places are acknowledged."""
        lines: dict[Line, None] = {}
        for place in places:
            place.is_settled = True
            lines[place.line] = None
        for line in lines:
            self._pass_settled(line)

    def unravel(self, place: Place, requests: Iterable[Request]) -> list[Place]:
        """Replace a run's place by a place for each of its records: in its line, not yet answered, in their order.

        `requests` holds one request per record; their rows and sizes add up to the place's. If its line was forgotten,
        the new places stand in no line either.
        """
        line = place.line
        places = [
            Place(line, r.record.offset, r.rows, r.size, place.taken_at, 1, r.record.timestamp_ms) for r in requests
        ]
        for places_of_line in (line.held, line.sent):
            if place in places_of_line:
                at = places_of_line.index(place)
                places_of_line.rotate(-at)
                places_of_line.popleft()
                places_of_line.extendleft(reversed(places))
                places_of_line.rotate(at)
        return places

    def committable(self, partitions: Iterable[Partition] | None = None) -> dict[Partition, int]:
        """The next offsets of these partitions (None: of all) that may be committed and are not yet."""
        lines = self._lines.values() if partitions is None else self._known(partitions)
        return {line.partition: line.next_offset for line in lines if line.next_offset > line.committed}

    def committed_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The next offsets that Kafka took for these partitions; one without a commit since it came is left out."""
        return {line.partition: line.committed for line in self._known(partitions) if line.committed >= 0}

    def committed(self, offsets: Mapping[Partition, int]) -> None:
        """Note that Kafka took these next offsets. A late result of an older commit changes nothing."""
        for line in self._known(offsets):
            line.committed = max(line.committed, offsets[line.partition])

    def is_behind(self, partition: Partition, position: int) -> bool:
        """True if all that was received of the partition is settled, and ends before this next offset."""
        line = self._lines.get(partition)
        return line is None or (line.oldest is None and line.next_offset < position)

    def awaits_delivery(self, partitions: Iterable[Partition] | None = None) -> bool:
        """True if answers of these partitions (None: of any) are on the way and not acknowledged."""
        lines = self._lines.values() if partitions is None else self._known(partitions)
        return any(line.sent for line in lines)

    def owes(self, partitions: Iterable[Partition]) -> bool:
        """True if a record of these partitions is taken and not settled."""
        return any(line.oldest for line in self._known(partitions))

    def knows(self, place: Place) -> bool:
        """True if the place stands in a line of this ledger; false after its partition was forgotten."""
        return self._lines.get(place.line.partition) is place.line

    def is_next(self, place: Place) -> bool:
        """True if this is the first record of its partition that is not settled."""
        return place.line.oldest is place

    def is_settled(self, place: Place) -> bool:
        """True if its answer is durable."""
        return place.line.next_offset > place.offset

    def settled(self, partition: Partition) -> int:
        """The last offset up to which all received records of the partition are settled; -1 for none."""
        line = self._lines.get(partition)
        return -1 if line is None else max(-1, line.next_offset - 1)

    def is_done(self, place: Place) -> bool:
        """True if its offset is committed, so that the record is not read again."""
        return place.line.committed > place.offset

    def forget(self, partitions: Iterable[Partition]) -> int:
        """Drop the lines of these partitions. Returns how many records leave unsettled."""
        unsettled = 0
        for line in self._known(partitions):
            for place in (*line.sent, *line.held):
                self._release(place)
                unsettled += place.records
            line.sent.clear()
            line.held.clear()
            del self._lines[line.partition]
        return unsettled

    def oldest_by_partition(self) -> dict[Partition, float]:
        """When each partition's oldest unsettled record was taken; partitions without one are left out."""
        return {line.partition: line.oldest.taken_at for line in self._lines.values() if line.oldest}

    def published_by_partition(self) -> dict[Partition, int]:
        """The timestamp of each partition's oldest unsettled record; partitions without one are left out."""
        return {
            line.partition: oldest.published_ms
            for line in self._lines.values()
            if (oldest := line.oldest) is not None and oldest.published_ms is not None
        }

    def _known(self, partitions: Iterable[Partition]) -> list[Line]:
        return [self._lines[partition] for partition in partitions if partition in self._lines]

    def _pass_settled(self, line: Line) -> None:
        """Let a commit of the line go as far as its first place that is not settled."""
        places = line.sent or line.held  # no held place is settled here; a `LooseLedger` keeps all places in `held`
        while places and places[0].is_settled:
            first = places.popleft()
            line.next_offset = first.offset + 1
            self._release(first)

    def _release(self, place: Place) -> None:
        self.records -= place.records
        self.rows -= place.rows
        self.size -= place.size

    def __repr__(self) -> str:
        return f"<OffsetLedger records={self.records} rows={self.rows} bytes={self.size} {list(self._lines.values())}>"


def taken_at(places: Iterable[Place]) -> Mapping[float, int]:
    """How many records of these places were taken at each instant; records of one poll share an instant."""
    counts: Counter[float] = Counter()
    for place in places:
        counts[place.taken_at] += place.records
    return counts
