"""Records of several partitions that are read together are read as if each partition's were read alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.chunks import P0, P1, Q0, chunk, record
from worker.core.chunk import Chunk, Reading, Waiting
from worker.core.failures import Code
from worker.core.reading_together import parted, read_together
from worker.core.records import Partition, Record, Rejection, ReplyForm

FORMS = (ReplyForm("a"), ReplyForm("b"))


class Reader:
    """Rejects a record whose value is "no", and has a chunk for each other value. It notes how many it was given."""

    def __init__(self, waits_at: int | None = None) -> None:
        self.waits_at = waits_at
        self.given: list[int] = []

    def read(self, records: Sequence[Record]) -> Reading:
        self.given.append(len(records))
        by_value: dict[bytes | None, list[int]] = {}
        for at, each in enumerate(records):
            by_value.setdefault(each.value, []).append(at)
        bad = by_value.pop(b"no", [])
        rejections = [(at, Rejection(records[at], Code.INVALID_ARGUMENT, "no", FORMS[0])) for at in bad]
        waiting = None if self.waits_at is None else Waiting(self.waits_at, 1)
        return Reading([_chunk(records, at) for at in by_value.values()], rejections, waiting)


def _chunk(records: Sequence[Record], at: Sequence[int]) -> Chunk:
    own = [records[index] for index in at]
    made = chunk(*[each.offset for each in own], partition=own[0].partition)
    return replace(made, records=own, at=at, ids=None)


def given(partition: Partition, values: str, first: int = 0) -> list[Record]:
    """Records from this offset on, each with a letter as its value; "x" is wrong."""
    return [
        record(first + at, partition=partition, value=b"no" if letter == "x" else letter.encode())
        for at, letter in enumerate(values)
    ]


def shown(readings: Sequence[Reading]) -> list[Any]:
    return [
        (
            sorted(([*each.at], [one.offset for one in each.records], each.partition) for each in reading.chunks),
            [(at, rejection.record.offset) for at, rejection in reading.rejections],
            reading.waiting,
        )
        for reading in readings
    ]


@pytest.mark.parametrize("values", [("a", "a", "a"), ("aab", "ba", "xx"), ("xax", "a", "bbxb"), ("ab", "x", "ab")])
def test_each_partition_has_its_own_chunks_and_rejections(values: tuple[str, ...]) -> None:
    """With their indexes among its records, as if they had been read by themselves; one call reads all."""
    by_partition = [given(at, some, first) for at, some, first in zip((P0, P1, Q0), values, (7, 0, 30), strict=True)]
    reader = Reader()

    readings = read_together(reader.read, by_partition)

    assert reader.given == [sum(map(len, values))]
    assert shown(readings) == shown([Reader().read(each) for each in by_partition])


def test_a_partition_whose_records_wait_does_not_hold_back_the_others() -> None:
    """Where one waits for a schema, each partition is read by itself."""
    by_partition = [given(P0, "a"), given(P1, "ab")]
    reader = Reader(waits_at=1)

    assert len(read_together(reader.read, by_partition)) == 2
    assert reader.given == [3, 1, 2]


def test_one_partition_is_read_as_it_is() -> None:
    """Nothing is parted."""
    reader = Reader()

    (reading,) = read_together(reader.read, [given(P0, "ab")])

    assert (reader.given, len(reading.chunks)) == ([2], 2)


def test_a_part_that_is_all_of_its_records_counts_from_nought() -> None:
    """Its indexes are a range, which costs nothing."""
    records = [*given(P0, "a"), *given(P1, "aaa")]

    first, second = parted(Reader().read(records), [1, 3])

    assert [each.at for reading in (first, second) for each in reading.chunks] == [range(1), range(3)]
