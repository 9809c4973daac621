"""One request of a key at a time, seen from the batcher."""

from __future__ import annotations

import pytest

from tests.builders import P0, P1, POLICY, record, request
from tests.fakes import MODEL
from worker.core.batching.batcher import Batcher
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import BatchKind, Partition, Reply, Request
from worker.core.runs import Run, run_of
from worker.state import ByKey


class Rig:
    """A `ByKey` in front of a batcher."""

    def __init__(self) -> None:
        self.ledger = OffsetLedger()
        self.batcher = Batcher({MODEL: POLICY})
        self.by_key = ByKey(self.batcher)

    def add(self, offset: int, key: bytes, *, rows: int = 1, partition: Partition = P0) -> Request:
        made = request(offset, rows=rows, partition=partition)
        made.record = made.record._replace(key=key)
        made.place = self.ledger.track(made.record, rows, 4, 0.0)
        self.by_key.add(made, 1.0)
        return made

    def add_parts(self, run: Run) -> list[int]:
        """Add the run in parts, and return where it was cut."""
        stops = [0]
        for stop in self.by_key.stops(run):
            part = run.single(stops[-1]) if stop - stops[-1] == 1 else run.part(stops[-1], stop)
            part.place = self.ledger.track(run.records[stop - 1], part.rows, part.size, 0.0, stop - stops[-1])
            self.by_key.add(part, 1.0)
            stops.append(stop)
        return stops[1:]

    def running(self) -> list[int]:
        """The offsets that the batcher gives away."""
        found: list[int] = []
        while (group := self.batcher.drain()) is not None:
            found += [one.record.offset for one in group.requests]
        return found


def run(*keys: bytes, rows_each: int = 1) -> Run:
    records = [record(n, key=key, partition=P1) for n, key in enumerate(keys)]
    count = len(keys)
    values = [b"\0" * 4 * rows_each] * count
    return run_of(records, values, rows_each, ((1,),), [Reply("raw")] * count, [4] * count, MODEL)


def test_the_next_of_a_key_goes_when_the_one_before_it_is_concluded() -> None:
    """It is due at once, since it has waited already."""
    rig = Rig()
    first, _second, _other = rig.add(0, b"a"), rig.add(1, b"a"), rig.add(2, b"b")
    assert (rig.running(), rig.by_key.waiting, rig.by_key.backlog) == ([0, 2], 1, 0)

    rig.by_key.concluded([first], 5.0)

    assert (rig.batcher.next_due, rig.by_key.waiting) == (5.0, 0)
    assert rig.running() == [1]


def test_what_is_concluded_after_its_partition_left_frees_nothing() -> None:
    """The key belongs to the next assignment."""
    rig = Rig()
    first = rig.add(0, b"a")
    rig.add(1, b"a")
    rig.by_key.forget([P0])
    rig.ledger.forget([P0])
    assert rig.by_key.waiting == 0
    rig.by_key.concluded([first], 2.0)

    rig.add(0, b"a")
    rig.add(1, b"a")
    rig.by_key.concluded([first], 3.0)

    assert rig.running() == [0]


@pytest.mark.parametrize(
    ("keys", "taken", "stops"),
    [
        ([b"a", b"b", b"c"], [], [3]),
        ([b"a", b"b", b"a", b"c"], [], [2, 3, 4]),
        ([b"a", b"b", b"a", b"c", b"d"], [], [2, 3, 5]),
        ([b"a", b"b", b"c"], [b"c"], [2, 3]),
        ([b"a", b"b"], [b"a"], [1, 2]),
        ([b"a", b"b", b"c", b"d", b"e"], [], [4, 5]),
        ([b"a", b"b", b"c", b"d", b"e", b"e"], [b"e"], [3, 4, 5, 6]),
    ],
)
def test_a_run_is_cut_before_each_key_that_is_taken(keys: list[bytes], taken: list[bytes], stops: list[int]) -> None:
    """An earlier request or one of the run has the key. Full batches cut a run, too. Waiting parts are single."""
    rig = Rig()
    for offset, key in enumerate(taken):
        rig.add(offset, key, partition=P1)

    assert rig.add_parts(run(*keys)) == stops
    assert rig.by_key.waiting == len(keys) + len(taken) - len({*keys, *taken})
    assert rig.by_key.kind(run(*keys)) == BatchKind(MODEL, ((1,),))


def test_of_requests_of_several_rows_each_goes_alone() -> None:
    """Their rows wait for one another."""
    assert Rig().add_parts(run(b"a", b"b", rows_each=2)) == [1, 2]
