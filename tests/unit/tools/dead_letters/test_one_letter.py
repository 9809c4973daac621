"""One letter is replayed as if its topic ended behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from worker.codecs.dead_letters import Position
from worker.core.records import Partition, Record
from worker.tools.dead_letters.one_letter import OneLetter

P = Partition("dead", 1)


class Topic:
    """Ten letters in a partition, given `size` at a time."""

    ends: Mapping[Partition, int] = {Partition("dead", 0): 99, P: 10}
    has_reached_ends = False

    def __init__(self, size: int) -> None:
        self._size = size
        self._next = 0

    def start_at(self, offsets: Mapping[Partition, int]) -> None:
        self._next = offsets[P]

    def read(self, timeout: float) -> Sequence[Record]:
        found = range(self._next, min(10, self._next + self._size))
        self._next += len(found)
        return [Record(P, offset, None, b"", (), None) for offset in found]


@pytest.mark.parametrize("size", [0, 1, 10])
def test_a_letter_is_read_alone(size: int) -> None:
    """However many come with it; until it has come there is more to read, and again once it is started anew."""
    one = OneLetter(Topic(size), Position("dead", 1, 4))
    for _ in range(2):
        one.start_at({P: 4})
        assert not one.has_reached_ends

        assert [record.offset for record in one.read(0.0)] == [4][:size]

        assert one.has_reached_ends == bool(size)
    assert one.ends == {P: 5}
