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
    """Rejects a record whose value is "no", and has a chunk for each other value; from "wait" on it reads nothing.

    It notes how many records it was given.
    """

    def __init__(self) -> None:
        self.given: list[int] = []

    def read(self, records: Sequence[Record]) -> Reading:
        self.given.append(len(records))
        values = [each.value for each in records]
        waiting = Waiting(values.index(b"wait"), 1) if b"wait" in values else None
        by_value: dict[bytes | None, list[int]] = {}
        for at, value in enumerate(values if waiting is None else values[: waiting.at]):
            by_value.setdefault(value, []).append(at)
        bad = by_value.pop(b"no", [])
        rejections = [(at, Rejection(records[at], Code.INVALID_ARGUMENT, "no", FORMS[0])) for at in bad]
        return Reading([_chunk(records, at) for at in by_value.values()], rejections, waiting)


def _chunk(records: Sequence[Record], at: Sequence[int]) -> Chunk:
    own = [records[index] for index in at]
    made = chunk(*[each.offset for each in own], partition=own[0].partition)
    return replace(made, records=own, at=at, ids=None)


def given(partition: Partition, values: str, first: int = 0) -> list[Record]:
    """Records from this offset on, each with a letter as its value; "x" is wrong, and "w" waits."""
    odd = {"x": b"no", "w": b"wait"}
    return [
        record(first + at, partition=partition, value=odd.get(letter, letter.encode()))
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


@pytest.mark.parametrize(
    ("values", "calls"),
    [
        (("aw", "ab", "x"), [5, 3]),
        (("a", "xwa", "b"), [5, 1]),
        (("w", "w", "aw"), [4, 3, 2]),
        (("a", "b", "aaw"), [5]),
    ],
)
def test_a_record_that_waits_holds_back_its_own_partition_alone(values: tuple[str, ...], calls: list[int]) -> None:
    """No record is read twice: the partitions behind it are read by another call."""
    by_partition = [given(at, some) for at, some in zip((P0, P1, Q0), values, strict=True)]
    reader = Reader()

    readings = read_together(reader.read, by_partition)

    assert reader.given == calls
    assert shown(readings) == shown([Reader().read(each) for each in by_partition])


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
