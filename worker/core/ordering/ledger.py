"""One structure for three things: records owed an answer, the order in which answers leave, how far a commit may go.

Each partition has a line of places, one for each record, in the order received. Records that were received together
have their places together, in columns (`Places`):

      settled  │  sent: its answer is on the way  │  held: no answer yet, or an earlier one is missing
    ───────────┼──────────────────────────────────┼──────────────────────────────────────────────▶ received
           committable                      next to leave

An answer leaves when every earlier record of its partition has one. A commit may reach the first record without an
acknowledged answer. Both follow the records *received*, never `offset + 1`: compaction and transaction markers leave
gaps. To forget a partition drops its line, so work that finishes late finds no line and is dropped. `order_by_key.py`
has the ledgers whose answers need not wait for all earlier ones.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from worker.core.records import Answer, Fields, Partition, Record, Rejection

# The state of one place, a byte.
OWED, SETTLED = range(2)
_GONE: Fields = ("", None, None, None, 0, None)  # stands for an answer that has left
_SETTLED = bytes([SETTLED])


class Line:
    """The places of one partition during one assignment that are not all settled, in order; the first `left` have left.

    `on_the_way` counts places whose answers have left and are not settled. `next_offset` is the one that a commit may
    carry, -1 until something is settled; `committed` is Kafka's.
    """

    __slots__ = ("committed", "is_forgotten", "left", "next_offset", "on_the_way", "partition", "places")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.places: deque[Places] = deque()
        self.left = self.on_the_way = 0
        self.next_offset = self.committed = -1
        self.is_forgotten = False

    def __repr__(self) -> str:
        return f"<Line {self.partition} places={len(self.places)} left={self.left} next_offset={self.next_offset}>"


class Places:
    """The places of records of one partition that were received together, in columns. The ledger owns them.

    `offsets`, `rows`, `sizes` (bytes) and `published_ms` have an entry for each record, `states` a byte. `answers` has
    each answer until it leaves; `missing` records have none yet. All before `left` have left, all before `passed` are
    settled. `is_gap`: the only place is of an offset that holds no record.
    """

    __slots__ = (
        *("answers", "changes", "is_gap", "keys", "left", "line", "missing", "offsets", "passed"),
        *("published_ms", "rows", "sizes", "states", "taken_at"),
    )

    def __init__(
        self,
        line: Line,
        offsets: Sequence[int],
        rows: list[int],
        sizes: list[int],
        published_ms: Sequence[int | None],
        taken_at: float,
    ) -> None:
        self.line, self.offsets, self.rows, self.sizes = line, offsets, rows, sizes
        self.published_ms, self.taken_at = published_ms, taken_at
        self.is_gap = False
        self.keys: Sequence[bytes | None] | None = None  # set only where records of one key wait for one another
        self.missing = len(offsets)
        self.answers: list[Answer | None] = [None] * self.missing
        self.changes: Any = None  # the states that the answers leave behind, for the room of the states alone
        self.states = bytearray(self.missing)
        self.left = self.passed = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"<Places {self.line.partition} {self.offsets[0]} to {self.offsets[-1]} {self.states.hex()}>"


class Place(NamedTuple):
    """The place of one record: the one at index `at`."""

    places: Places
    at: int

    @property
    def partition(self) -> Partition:
        return self.places.line.partition

    @property
    def offset(self) -> int:
        return self.places.offsets[self.at]

    def __str__(self) -> str:
        """The record's name for ever, as `Record.source`."""
        return f"{self.partition}/{self.offset}"


class Stretch(NamedTuple):
    """Neighbouring places, `start` to `stop`."""

    places: Places
    start: int
    stop: int

    @property
    def partition(self) -> Partition:
        return self.places.line.partition

    @property
    def records(self) -> int:
        return 0 if self.places.is_gap else self.stop - self.start

    @property
    def next_offset(self) -> int:
        """The offset that a commit past all of it carries."""
        return self.places.offsets[self.stop - 1] + 1

    @property
    def first(self) -> Place:
        return Place(self.places, self.start)

    def cut(self, count: int) -> tuple[Stretch, Stretch]:
        """The first `count` places, and the others."""
        places, start, stop = self
        return Stretch(places, start, start + count), Stretch(places, start + count, stop)

    def __str__(self) -> str:
        last = self.places.offsets[self.stop - 1]
        return f"{self.first} to {last}" if self.stop - self.start > 1 else str(self.first)


# Answers of records at these indexes, which ascend.
Answered = tuple[Places, Sequence[int], Sequence[Answer]]


class OffsetLedger:
    """The lines of all assigned partitions; `records`, `rows`, `size` (bytes) count records taken and not settled.

    A record that is settled before an earlier one still counts as a record, because it would be answered again after a
    crash; its rows and bytes count no more.
    """

    def __init__(self) -> None:
        self._lines: dict[Partition, Line] = {}
        self.records = 0
        self.rows = 0
        self.size = 0

    def track(self, records: Sequence[Record], rows: list[int], sizes: list[int], now: float) -> Places:
        """Take records of one partition, in order: each is owed an answer, and no commit passes it before that.

        `rows` and `sizes` (bytes) have an entry for each; they belong to the ledger from now on.
        """
        first = records[0]
        line = self._lines.get(first[0])
        if line is None or first[1] < line.committed:
            line = self._line(first)
        offsets: Sequence[int]
        if len(records) == 1:  # what many records need takes 0.7 µs
            offsets, stamps = (first[1],), [first[5]]
        else:
            start, stop = first[1], records[-1][1] + 1
            offsets = range(start, stop) if stop - start == len(records) else [record[1] for record in records]
            stamps = [record[5] for record in records]
        places = Places(line, offsets, rows, sizes, stamps, now)
        line.places.append(places)
        self.records += len(records)
        self.rows += sum(rows)
        self.size += sum(sizes)
        return places

    def track_gap(self, partition: Partition, offset: int, now: float) -> Places:
        """Take an offset that holds no record: it only has a place in the line."""
        line = self._line(Record(partition, offset, None, None, (), None))
        places = Places(line, [offset], [0], [0], [None], now)
        places.is_gap = True
        line.places.append(places)
        return places

    def answer(self, answers: Iterable[Answered]) -> list[Stretch]:
        """Note the answers to records. Returns the places whose answers may leave now, in order within each line.

        From now on the answer's bytes count for a record, not the request's.
        """
        lines: dict[Line, None] = {}
        for places, at, given in answers:
            if not places.line.is_forgotten:
                self._note(places, at, given)
                lines[places.line] = None
        leaving: list[Stretch] = []
        for line in lines:
            self._leave(line, leaving)
        return leaving

    def _note(self, places: Places, at: Sequence[int], given: Sequence[Answer]) -> None:
        sizes, known, grown = places.sizes, places.answers, 0
        # For one record the `zip` would take a microsecond.
        both = ((at[0], given[0]),) if len(at) == len(given) == 1 else zip(at, given, strict=True)
        for index, answer in both:
            assert known[index] is None, "a record is answered twice"
            known[index] = answer
            if type(answer) is not Rejection:  # it holds the record until it leaves
                size = len(answer[2] or b"")
                grown += size - sizes[index]
                sizes[index] = size
        self.size += grown
        places.missing -= len(at)

    def _leave(self, line: Line, leaving: list[Stretch]) -> None:
        """Add the answers of this line that have no earlier one to wait for."""
        while line.left < len(line.places):
            places = line.places[line.left]
            start, answers = places.left, places.answers
            stop = answers.index(None, start) if places.missing else len(answers)
            if stop > start:
                places.left = stop
                line.on_the_way += stop - start
                leaving.append(tuple.__new__(Stretch, (places, start, stop)))  # half the price of its constructor
            if stop < len(answers):
                return
            line.left += 1

    @staticmethod
    def take_answers(stretch: Stretch) -> Sequence[Answer]:
        """The answers that leave, in order. The ledger keeps them no longer."""
        places, start, stop = stretch
        answers = places.answers[start:stop]
        places.answers[start:stop] = [_GONE] * len(answers)
        return answers  # type: ignore[return-value]  # all of them have left, so each is there

    def settle(self, stretches: Iterable[Stretch]) -> None:
        """Note that all messages of these places are acknowledged."""
        lines: dict[Line, None] = {}
        for places, start, stop in stretches:
            line = places.line
            if line.is_forgotten:
                continue
            lines[line] = None
            line.on_the_way -= stop - start
            if stop - start == 1:  # slices of one would take a microsecond
                places.states[start] = SETTLED
                self.rows -= places.rows[start]
                self.size -= places.sizes[start]
                continue
            places.states[start:stop] = _SETTLED * (stop - start)
            self.rows -= sum(places.rows[start:stop])
            self.size -= sum(places.sizes[start:stop])
        for line in lines:
            self._pass_settled(line)

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
        return line is None or (not line.places and line.next_offset < position)

    def awaits_delivery(self, partitions: Iterable[Partition] | None = None) -> bool:
        """True if answers of these partitions (None: of any) are on the way and not acknowledged."""
        lines = self._lines.values() if partitions is None else self._known(partitions)
        return any(line.on_the_way > 0 for line in lines)

    def owes(self, partitions: Iterable[Partition]) -> bool:
        """True if a record of these partitions is taken and not settled."""
        return any(line.places for line in self._known(partitions))

    def knows(self, places: Places) -> bool:
        """True if they stand in a line of this ledger; false after their partition was forgotten."""
        return not places.line.is_forgotten

    def settled(self, partition: Partition) -> int:
        """The last offset up to which all received records of the partition are settled; -1 for none."""
        line = self._lines.get(partition)
        return -1 if line is None else max(-1, line.next_offset - 1)

    def forget(self, partitions: Iterable[Partition]) -> int:
        """Drop the lines of these partitions. Returns how many records leave unsettled."""
        unsettled = 0
        for line in self._known(partitions):
            for places in line.places:
                self._release(places)
                unsettled += 0 if places.is_gap else len(places) - places.states.count(SETTLED)
            line.places.clear()
            line.is_forgotten = True
            del self._lines[line.partition]
        return unsettled

    def oldest_by_partition(self) -> dict[Partition, float]:
        """When each partition's oldest unsettled record was taken; partitions without one are left out."""
        return {line.partition: line.places[0].taken_at for line in self._lines.values() if line.places}

    def published_by_partition(self) -> dict[Partition, int]:
        """The timestamp of each partition's oldest unsettled record; partitions without one are left out."""
        first = [line.places[0] for line in self._lines.values() if line.places]
        stamps = [(places.line.partition, places.published_ms[places.passed]) for places in first]
        return {partition: stamp for partition, stamp in stamps if stamp is not None}

    def _line(self, first: Record) -> Line:
        """The line of this record, which is the next of its partition."""
        line = self._lines.get(first.partition)
        if line is None:
            line = self._lines[first.partition] = Line(first.partition)
        if first.offset < line.committed:  # its topic was deleted and created again, without a rebalance
            line.committed = line.next_offset = -1
        return line

    def _known(self, partitions: Iterable[Partition]) -> list[Line]:
        return [self._lines[partition] for partition in partitions if partition in self._lines]

    def _pass_settled(self, line: Line) -> None:
        """Let a commit of the line go as far as its first place that is not settled."""
        while line.places:
            places = line.places[0]
            count = len(places.states)
            passed = count - len(places.states.lstrip(_SETTLED))
            if passed > places.passed:
                self.records -= 0 if places.is_gap else passed - places.passed
                places.passed = passed
                line.next_offset = places.offsets[passed - 1] + 1
            if passed < count:
                return
            line.places.popleft()
            line.left -= line.left > 0

    def _release(self, places: Places) -> None:
        """Count the records that have not been passed no more; of settled ones only the records count."""
        self.records -= 0 if places.is_gap else len(places) - places.passed
        for at in range(places.passed, len(places)):
            if places.states[at] != SETTLED:
                self.rows -= places.rows[at]
                self.size -= places.sizes[at]

    def __repr__(self) -> str:
        return f"<OffsetLedger records={self.records} rows={self.rows} bytes={self.size} {list(self._lines.values())}>"


def taken_at(stretches: Iterable[Stretch]) -> Mapping[float, int]:
    """How many records of these places were taken at each instant; records of one poll share an instant."""
    counts: Counter[float] = Counter()
    for stretch in stretches:
        counts[stretch.places.taken_at] += stretch.records
    return counts


def stretches_of(places: Places, indexes: Collection[int]) -> list[Stretch]:
    """These places, which ascend, as few stretches as possible."""
    found: list[Stretch] = []
    start = stop = -1
    for at in indexes:
        if at == stop:
            stop += 1
            continue
        if stop > start:
            found.append(Stretch(places, start, stop))
        start, stop = at, at + 1
    return [*found, Stretch(places, start, stop)] if stop > start else found
