"""A chunk's columns stay together, whatever part of it goes on."""

from __future__ import annotations

import pytest

from tests.chunks import P1, RAW, chunk, offsets, record
from worker.core.chunk import Chunk, refusal
from worker.core.failures import Code
from worker.core.records import Ids, Timeout

FOUR = chunk(
    *(4, 5, 7, 9),
    rows=[1, 2, 3, 4],
    shapes=[((1,),), ((2,),), ((3,),), ((4,),)],
    sizes=[10, 20, 30, 40],
    timeouts=[None, Timeout(5.0), Timeout(7.0), None],
    deadlines=[4.0, 5.0, 7.0, 9.0],
    ids=[Ids("four"), Ids("five"), Ids("seven"), Ids("nine")],
)


def columns(of: Chunk) -> list[tuple[object, ...]]:
    """All that a chunk says of each record."""
    assert of.timeouts is not None
    assert of.deadlines is not None
    ids = [of.ids_of(at) for at in range(len(of))]
    return list(
        zip(of.records, of.rows, of.shapes, *of.tensors, of.sizes, of.at, of.timeouts, of.deadlines, ids, strict=True)
    )


@pytest.mark.parametrize("indexes", [[0], [3], [1, 2], [0, 2], [0, 1, 3], [0, 3], [0, 1, 2, 3]])
def test_each_record_keeps_what_is_said_of_it(indexes: list[int]) -> None:
    """A part has the columns of its own records, in their order, and all that the whole chunk says once."""
    part = FOUR.pick(indexes)

    assert columns(part) == [columns(FOUR)[at] for at in indexes]
    assert (part.model, part.form, part.state, part.partition) == (FOUR.model, RAW, None, FOUR.partition)


def test_a_part_of_all_records_is_the_chunk_itself() -> None:
    """The usual chunk goes whole, and costs nothing."""
    assert FOUR.take(0, 4) is FOUR
    assert FOUR.pick([0, 1, 2, 3]) is FOUR


def test_neighbours_are_a_slice() -> None:
    """So the whole can be put together again from its slices."""
    parts = [FOUR.take(0, 1), FOUR.take(1, 3), FOUR.take(3, 4)]

    assert [row for part in parts for row in columns(part)] == columns(FOUR)
    assert offsets(parts) == [4, 5, 7, 9]


def test_what_no_record_has_is_no_column() -> None:
    """Most chunks have no ids, timeouts or deadlines."""
    part = chunk(1, 2, 3).pick([0, 2])

    assert (part.ids, part.timeouts, part.deadlines) == (None, None, None)
    assert part.ids_of(1) == Ids()


def test_a_chunk_has_the_keys_of_its_records() -> None:
    """A part has the keys of its own records, also if the whole was asked for its keys before."""
    whole = chunk(records=[record(0, key=b"a"), record(1, key=None), record(2, key=b"c")])
    unasked = whole.take(1, 3)

    assert list(whole.keys) == [b"a", b"", b"c"]
    assert list(unasked.keys) == list(whole.take(1, 3).keys) == [b"", b"c"]


def test_a_record_has_a_name_for_ever() -> None:
    """It says where the record stands."""
    assert record(7, partition=P1).source == "requests/1/7"


def test_a_refusal_names_its_own_record() -> None:
    """The first, the last, or one in the middle, of the whole or of a part."""
    for at, offset in enumerate((4, 5, 7, 9)):
        refused = refusal(FOUR, at, Code.INTERNAL, "no")
        assert (refused.rejection.record.offset, refused.rejection.ids) == (offset, columns(FOUR)[at][-1])
    assert refusal(FOUR.take(1, 4), 1, Code.INTERNAL, "no").rejection.ids == Ids("seven")
