"""Records that wait for the states of their keys to come from a store outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from tests.chunks import MODEL, P0, P1, tracked
from tests.unit.state.rig import chunk_of, keyed
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Partition
from worker.state import OutsideStates, StateFetch


class Coming:
    """States that come when the test says so."""

    def __init__(self, *here: bytes) -> None:
        self.here = set(here)
        self.tell_here: Callable[[Partition, Sequence[bytes]], object] = lambda *_: None

    def missing(self, partition: Partition, keys: Sequence[bytes]) -> list[bytes]:
        return [key for key in keys if key not in self.here or partition == P1]

    def come(self, *keys: bytes, partition: Partition = P0) -> None:
        self.here.update(keys)
        self.tell_here(partition, keys)


class Fetch:
    def __init__(self, *here: bytes) -> None:
        self.states = Coming(*here)
        self.batcher = Batcher({MODEL: BatchPolicy(max_rows=8, max_bytes=1 << 20, linger=0.005)})
        self.stage = StateFetch(self.batcher, cast("OutsideStates", self.states), lambda: 7.0)
        self.add_late = self.stage.add_late

    def add(self, *keys: bytes, start: int = 0, partition: Partition = P0) -> None:
        records = [keyed(start + at, key, partition=partition) for at, key in enumerate(keys)]
        self.stage.add(tracked(OffsetLedger(), chunk_of(records)), 1.0)

    def passed_on(self) -> list[list[int]]:
        """The offsets of the chunks that the batcher has."""
        found: list[list[int]] = []
        while (group := self.batcher.drain()) is not None:
            found += [[one.offset for one in chunk.records] for chunk in group.chunks]
        return found


@pytest.mark.parametrize(
    ("here", "at_once", "later"),
    [
        (b"abc", [[0, 1, 2]], []),
        (b"bc", [[1, 2]], [[0]]),
        (b"ac", [[0, 2]], [[1]]),
        (b"ab", [[0, 1]], [[2]]),
        (b"b", [[1]], [[0, 2]]),
        (b"", [], [[0, 1, 2]]),
    ],
)
def test_records_whose_states_are_missing_wait_and_their_neighbours_go(
    here: bytes, at_once: list[list[int]], later: list[list[int]]
) -> None:
    """They go on together when the last of their states is here, and are due at once."""
    fetch = Fetch(*(bytes([key]) for key in here))
    fetch.add(b"a", b"b", b"c")
    assert fetch.passed_on() == at_once
    missing = [key for key in (b"a", b"b", b"c") if key not in fetch.states.here]
    assert fetch.stage.waiting == len(missing)

    for key in missing[:-1]:
        fetch.states.come(key)
    assert fetch.passed_on() == []
    fetch.states.come(*missing[-1:], b"other")

    assert fetch.batcher.next_due == (7.0 if missing else None)
    assert fetch.passed_on() == later
    assert (fetch.stage.waiting, fetch.stage.backlog) == (0, 0)


def test_a_partition_that_left_brings_nothing_more() -> None:
    """The other partitions' records still wait."""
    fetch = Fetch()
    fetch.add(b"a")
    fetch.add(b"a", start=5, partition=P1)

    fetch.stage.forget([P0])
    fetch.states.come(b"a")
    fetch.states.come(b"a", partition=P1)

    assert fetch.passed_on() == [[5]]


def test_records_that_have_waited_for_their_key_do_not_linger() -> None:
    """Their states may be here, or come later."""
    fetch = Fetch(b"a")
    fetch.add_late(tracked(OffsetLedger(), chunk_of([keyed(0, b"a"), keyed(1, b"b")])), 3.0)

    assert fetch.batcher.next_due == 3.0
    assert fetch.passed_on() == [[0]]
