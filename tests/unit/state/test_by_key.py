"""One record of a key at a time, seen from the batcher."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chunks import P0, P1, tracked
from tests.unit.state.rig import Rig, chunk_of, keyed
from worker.core.chunk import Chunk, refusal
from worker.core.failures import Code
from worker.core.records import Record
from worker.state.by_key import SMALL


def records(*keys: bytes, start: int = 0) -> list[Record]:
    return [keyed(start + at, key) for at, key in enumerate(keys)]


def waiting(rig: Rig) -> list[Chunk]:
    """The chunks that the batcher gives away."""
    found: list[Chunk] = []
    while (group := rig.batcher.drain()) is not None:
        found += group.chunks
    return found


def offsets(chunks: list[Chunk]) -> list[list[int]]:
    return [[one.offset for one in chunk.records] for chunk in chunks]


def test_the_next_of_a_key_goes_when_the_one_before_it_is_concluded() -> None:
    """It is due at once, since it has waited already."""
    rig = Rig()
    rig.take(*records(b"a", b"a", b"b"))
    [running] = waiting(rig)
    assert (offsets([running]), rig.by_key.waiting, rig.by_key.backlog) == ([[0, 2]], 1, 0)

    rig.by_key.concluded([running.take(0, 1)], 5.0)

    assert (rig.batcher.next_due, rig.by_key.waiting) == (5.0, 0)
    assert offsets(waiting(rig)) == [[1]]


def test_what_is_concluded_after_its_partition_left_frees_nothing() -> None:
    """The key belongs to the next assignment."""
    rig = Rig()
    rig.take(*records(b"a", b"a"))
    [first] = waiting(rig)
    rig.by_key.forget([P0])
    rig.ledger.forget([P0])
    assert (rig.by_key.waiting, rig.by_key.is_taken(P0, b"a")) == (0, False)
    rig.by_key.concluded([first], 2.0)

    rig.take(*records(b"a", b"a"))
    rig.by_key.concluded([first], 3.0)

    assert offsets(waiting(rig)) == [[0]]
    assert rig.by_key.is_taken(P0, b"a")
    assert not rig.by_key.is_taken(P1, b"a")


@pytest.mark.parametrize(
    ("keys", "taken", "free"),
    [
        (b"abc", b"", [0, 1, 2]),
        (b"abac", b"", [0, 1, 3]),
        (b"aaab", b"", [0, 3]),
        (b"abc", b"c", [0, 1]),
        (b"abc", b"b", [0, 2]),
        (b"abc", b"a", [1, 2]),
        (b"ab", b"ab", []),
    ],
)
def test_records_whose_keys_are_free_go_as_one_chunk(keys: bytes, taken: bytes, free: list[int]) -> None:
    """An earlier record, of the chunk or before it, has the key of each other record."""
    rig = Rig(max_rows=8)
    if taken:
        rig.take(*records(*(bytes([key]) for key in taken), start=100))
        waiting(rig)

    rig.take(*records(*(bytes([key]) for key in keys)))

    assert offsets(waiting(rig)) == ([free] if free else [])
    assert rig.by_key.waiting == len(keys) - len(free)


def test_each_key_has_its_records_in_order() -> None:
    """Records that go on together and came together are one chunk, however late some of them are."""
    rig = Rig(max_rows=8)
    rig.take(*records(b"a", b"b", b"c"))
    rig.take(*records(b"c", b"a", b"b", b"a", b"d", start=3))
    running, later = waiting(rig)
    assert offsets([running, later]) == [[0, 1, 2], [7]]

    rig.by_key.concluded([running], 5.0)
    second = waiting(rig)
    assert offsets(second) == [[3, 4, 5]]
    assert [chunk.keys for chunk in second] == [[b"c", b"a", b"b"]]

    rig.by_key.concluded(second, 6.0)
    assert offsets(waiting(rig)) == [[6]]
    assert rig.by_key.waiting == 0


@pytest.mark.parametrize(("size", "parts"), [(SMALL, [[2, 3]]), (SMALL + 1, [[2], [3]])])
def test_large_records_that_wait_are_parted(size: int, parts: list[list[int]]) -> None:
    """Each leaves memory with its own answer, however long its neighbour has to wait."""
    rig = Rig(max_rows=8)
    rig.take(*records(b"a", b"b"))
    [running] = waiting(rig)
    later = chunk_of(records(b"a", b"b", start=2))
    rig.by_key.add(tracked(rig.ledger, replace(later, sizes=[size] * 2)), 1.0)

    rig.by_key.concluded([running], 5.0)

    assert offsets(waiting(rig)) == parts


def test_rows_of_a_sequence_wait_for_one_another_and_neighbours_do_not() -> None:
    """A sequence may stand first, in the middle and last in a chunk, and behind its key's earlier record."""
    rig = Rig(max_rows=8)
    chunk = rig.take(
        *[keyed(0, b"a", 1, 2), keyed(1, b"b"), keyed(2, b"b", 3, 4), keyed(3, b"b"), keyed(4, b"c", 5, 6)]
    )

    turns: list[list[list[int]]] = []
    while found := waiting(rig):
        turns.append(sorted(offsets(found)))
        rig.by_key.concluded(found, 5.0)

    assert turns == [[[0], [1], [4]], [[0], [2], [4]], [[2]], [[3]]]
    assert rig.by_key.waiting == 0
    assert chunk.rows == [2, 1, 2, 1, 2]


@pytest.mark.parametrize("others", [[], [keyed(1, b"a")]])
def test_the_rows_behind_one_that_failed_wait_no_more(others: list[Record]) -> None:
    """The key's next record goes on; where there is none, the key is free."""
    rig = Rig()
    rig.take(keyed(0, b"a", 1, 2, 3), *others)
    [first] = waiting(rig)
    assert first.reassembly is not None
    first.reassembly.collect(first, refusal(first, 0, Code.NOT_FOUND, "no").rejection)

    rig.by_key.concluded([first], 5.0)

    assert offsets(waiting(rig)) == [[1]] * len(others)
    assert rig.by_key.waiting == 0
    assert rig.by_key.is_taken(P0, b"a") == bool(others)


def test_a_record_goes_to_the_batch_of_its_kind() -> None:
    """The stage knows what the batcher knows."""
    rig = Rig()
    chunk = rig.take(*records(b"a", b"b"))

    [(kind, part)] = rig.by_key.by_batch(chunk)

    assert (kind.shapes, part) == (((1,),), chunk)


def test_records_of_several_shapes_overtake_none_of_their_key() -> None:
    """They come in parts of neighbours, because whoever adds them adds part after part."""
    rig = Rig()
    chunk = rig.take(*records(b"a", b"b", b"a"))
    mixed = replace(chunk, shapes=[((1,),), ((2,),), ((1,),)])

    parts = [part for _, part in rig.by_key.by_batch(mixed)]

    assert offsets(parts) == [[0], [1], [2]]
