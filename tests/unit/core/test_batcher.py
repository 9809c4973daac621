"""The batcher closes groups for a reason, and chooses which one goes first."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from tests.chunks import MODEL, chunk, spec
from tests.chunks import offsets as offsets_of
from worker.core.batching import batcher as batching
from worker.core.batching.batcher import Batcher, BatchPolicy, Group
from worker.core.batching.limits import FIRST_PATIENCE, Limit
from worker.core.batching.linger import Linger
from worker.core.chunk import Batch, Chunk
from worker.core.records import BatchKind, ClosedBy, ModelKey
from worker.core.tensors.buckets import Axis, Buckets, Spot

NARROW = ((1,),)
WIDE = ((2,),)
NEWER = MODEL._replace(version="2")


def batcher(max_rows: int = 4, max_bytes: int = 1000, linger: float = 5.0) -> Batcher:
    return Batcher({MODEL: BatchPolicy(max_rows, max_bytes, linger)})


def offsets(group: Group | None) -> list[int]:
    assert group is not None
    return offsets_of(group.chunks)


def closed(group: Group | None) -> tuple[list[int], ClosedBy]:
    assert group is not None
    return offsets_of(group.chunks), group.closed_by


def test_a_group_closes_by_size_with_its_last_row() -> None:
    """The last row that fits closes the group; the batcher does not wait for a row that does not fit."""
    waiting = batcher(max_rows=3)
    for at in range(3):
        waiting.add(chunk(at), 0.0)

    group = waiting.due(0.0)

    assert closed(group) == ([0, 1, 2], ClosedBy.SIZE)


def test_a_group_closes_by_bytes() -> None:
    """Bytes close a group like rows: by filling it, or by not fitting."""
    waiting = batcher(max_bytes=10)
    waiting.add(chunk(0, sizes=10), 0.0)
    waiting.add(chunk(1, sizes=6), 0.0)
    waiting.add(chunk(2, sizes=6), 0.0)

    assert closed(waiting.due(0.0)) == ([0], ClosedBy.BYTES)
    assert closed(waiting.due(0.0)) == ([1], ClosedBy.BYTES)


def test_the_linger_counts_from_the_first_record() -> None:
    """Later requests do not prolong the wait."""
    waiting = batcher(linger=5.0)
    waiting.add(chunk(0), 100.0)
    waiting.add(chunk(1), 104.0)
    assert waiting.next_due == 105.0
    assert waiting.due(104.9) is None

    group = waiting.due(105.0)

    assert closed(group) == ([0, 1], ClosedBy.LINGER)


def test_only_requests_for_the_same_model_share_a_group() -> None:
    """Name and version must agree; shapes do not matter for that."""
    policy = BatchPolicy(4, 1000, 0.0)
    waiting = Batcher({MODEL: policy, NEWER: policy})
    for offset, version in enumerate(["1", "2", "1", "2"]):
        # The key is equal to another request's key, but another object.
        waiting.add(chunk(offset, model=ModelKey("m", version)), 0.0)

    assert offsets(waiting.due(0.0)) == [0, 2]
    assert offsets(waiting.due(0.0)) == [1, 3]


def test_each_model_has_its_own_rules() -> None:
    """Each model pads its own axes and sets the linger of its groups."""
    buckets = Buckets((Axis("input x axis 1", (4,), {Spot(0, 0): 0}),), [spec(dims=(None,))])
    waiting = Batcher({MODEL: BatchPolicy(2, 1000, 1.0), NEWER: BatchPolicy(3, 1000, 5.0, buckets=buckets)})
    for offset, (model, shapes) in enumerate([(MODEL, NARROW), (NEWER, NARROW), (NEWER, WIDE), (MODEL, NARROW)]):
        waiting.add(chunk(offset, shapes=shapes, model=model), 0.0)

    full, open_ = waiting.due(0.0), waiting.drain()

    assert full is not None
    assert open_ is not None
    assert (offsets(full), full.closed_by, full.due_at) == ([0, 3], ClosedBy.SIZE, 1.0)
    assert (offsets(open_), open_.kind, open_.due_at) == ([1, 2], BatchKind(NEWER, ((4,),)), 5.0)
    assert waiting.linger == 5.0


def test_an_older_due_group_goes_before_a_full_one() -> None:
    """So a rare shape never starves behind a common one."""
    waiting = batcher(max_rows=2, linger=5.0)
    waiting.add(chunk(0, shapes=WIDE), 0.0)
    waiting.add(chunk(1), 1.0)
    waiting.add(chunk(2), 1.0)

    assert offsets(waiting.due(4.9)) == [1, 2]
    waiting.add(chunk(3), 5.0)
    waiting.add(chunk(4), 5.0)
    assert offsets(waiting.due(5.0)) == [0]
    assert offsets(waiting.due(5.0)) == [3, 4]


def test_only_a_full_group_makes_something_be_stacked_ahead() -> None:
    """While every lane is busy, a group that is due keeps filling."""
    waiting = batcher(max_rows=2, linger=0.0)
    waiting.add(chunk(0), 0.0)
    assert waiting.ahead(9.0) is None

    waiting.add(chunk(1), 9.0)

    assert offsets(waiting.ahead(9.0)) == [0, 1]


def test_under_pressure_the_oldest_group_goes_however_young() -> None:
    """When nothing more may be taken, waiting is useless: full groups go first, then open ones by age."""
    waiting = batcher(max_rows=2)
    waiting.add(chunk(0, shapes=WIDE), 0.0)
    waiting.add(chunk(1), 0.0)
    waiting.add(chunk(2), 0.0)
    waiting.add(chunk(3), 0.0)

    pressed = [closed(waiting.pressed()) for _ in range(3)]

    assert pressed == [([1, 2], ClosedBy.SIZE), ([0], ClosedBy.PRESSURE), ([3], ClosedBy.PRESSURE)]
    assert waiting.pressed() is None


def test_a_drain_begins_with_what_is_due_first() -> None:
    """Time may not suffice for all, and a batch that runs before an older request cannot be committed."""
    waiting = batcher(max_rows=2)
    for offset, length in enumerate((3, 1, 1, 1, 1, 2)):
        waiting.add(of_length(offset, length), float(offset))

    drained = [waiting.drain() for _ in range(4)]

    assert [offsets(group) for group in drained] == [[0], [1, 2], [3, 4], [5]]
    assert waiting.drain() is None


def test_a_request_is_cut_by_bytes_too() -> None:
    """A piece has as many rows as the bytes of a batch allow."""
    policy = BatchPolicy(max_rows=100, max_bytes=10, linger=0.0)

    assert policy.piece_rows(10, 40, most=100) == 2
    assert policy.piece_rows(10, 10, most=100) == 10


def padded(max_rows: int = 8, max_bytes: int = 10_000, max_tokens: int | None = None) -> Batcher:
    """A batcher that pads lengths to 4, 16 or 64 elements of 4 bytes."""
    buckets = Buckets((Axis("input x axis 1", (4, 16, 64), {Spot(0, 0): 0}),), [spec(dims=(None,))])
    return Batcher({MODEL: BatchPolicy(max_rows, max_bytes, 5.0, max_tokens, buckets)})


def of_length(offset: int, length: int, *, deadline: float | None = None, rows: int = 1) -> Chunk:
    return chunk(offset, shapes=((length,),), rows=rows, deadlines=None if deadline is None else [deadline])


@pytest.mark.parametrize(
    ("waiting", "length", "why"),
    [(padded(max_tokens=40), 5, ClosedBy.TOKENS), (padded(max_bytes=600), 17, ClosedBy.BYTES)],
)
def test_a_row_counts_as_long_as_its_bucket(waiting: Batcher, length: int, why: ClosedBy) -> None:
    """Tokens and bytes include the padding: a short request takes a whole padded row."""
    for offset in range(3):
        waiting.add(of_length(offset, length), 0.0)

    group = waiting.due(0.0)

    assert closed(group) == ([0, 1], why)


def test_a_model_of_a_fixed_number_of_rows_has_no_smaller_batches_of_long_rows() -> None:
    """Each of its runs has all rows, so fewer requests would only mean more padding."""
    policy = BatchPolicy(4, 10_000, 5.0, max_tokens=40, is_fixed=True)

    assert policy.limit(((64,),)) == Limit(4, ClosedBy.SIZE)


def test_an_urgent_request_makes_its_group_due_earlier() -> None:
    """The expected inference time is subtracted, and the group that is due first goes first."""
    policy = BatchPolicy(max_rows=8, max_bytes=1000, linger=5.0)
    waiting = Batcher({MODEL: policy}, expected=lambda _, rows: 0.5 * rows)
    waiting.add(of_length(0, 4), 0.0)
    waiting.add(of_length(1, 8), 1.0)
    waiting.add(of_length(2, 8, deadline=4.0), 1.0)
    waiting.add(of_length(3, 8, deadline=9.0), 1.0)

    assert waiting.next_due == 2.5
    assert waiting.due(2.4) is None
    assert offsets(waiting.due(2.5)) == [1, 2, 3]
    assert waiting.next_due == 5.0


def test_where_no_run_time_is_known_a_group_is_due_at_its_deadline() -> None:
    """A deadline that is later than the linger changes nothing."""
    waiting = batcher(linger=5.0)
    waiting.add(of_length(0, 1, deadline=9.0), 0.0)
    assert waiting.next_due == 5.0

    waiting.add(of_length(1, 1, deadline=4.0), 0.0)

    assert waiting.next_due == 4.0


def stacked(rows: int, length: int) -> Batch:
    return Batch([chunk(0)], {"x": np.zeros((rows, length), "f4")}, rows, ClosedBy.SIZE)


def test_what_the_device_has_no_memory_for_is_not_tried_again() -> None:
    """Later batches of those shapes are smaller; an open group that is as large closes."""
    waiting = padded()
    waiting.add(chunk(*range(4), shapes=((64,),)), 0.0)

    waiting.ran_out_of_memory(stacked(8, 64))
    group = waiting.due(0.0)
    waiting.add(of_length(4, 64), 0.0)

    assert closed(group) == ([0, 1, 2, 3], ClosedBy.MEMORY)
    assert waiting.due(4.9) is None


def test_groups_that_wait_and_are_too_large_are_made_anew() -> None:
    """Each of them would fail and be halved. The records keep their order, and the time when they are due."""
    waiting = padded()
    waiting.add(chunk(*range(8), shapes=((64,),)), 1.0)
    waiting.add(chunk(*range(8, 21), shapes=((64,),)), 2.0)

    waiting.ran_out_of_memory(stacked(8, 64))

    assert waiting.backlog == 5
    assert [offsets(waiting.due(3.0)) for _ in range(5)] == [[*range(at, at + 4)] for at in range(0, 20, 4)]
    assert waiting.next_due == 2.0 + 5.0
    assert offsets(waiting.drain()) == [20]


def test_groups_that_are_made_anew_stay_before_the_open_one() -> None:
    """Its records came last. They do not fill up with earlier ones."""
    waiting = padded()
    waiting.add(chunk(*range(10), shapes=((64,),)), 1.0)
    assert waiting.backlog == 1

    waiting.ran_out_of_memory(stacked(8, 64))

    assert [offsets(waiting.drain()) for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_an_open_group_that_is_still_small_enough_goes_on_filling() -> None:
    """It closes with as many rows as the device has memory for."""
    waiting = padded()
    waiting.add(of_length(0, 64), 0.0)

    waiting.ran_out_of_memory(stacked(8, 64))
    waiting.add(chunk(*range(1, 6), shapes=((64,),)), 0.0)

    assert offsets(waiting.due(0.0)) == [0, 1, 2, 3]
    assert offsets(waiting.drain()) == [4, 5]


def test_the_limit_of_the_device_grows_back() -> None:
    """Full batches that run show that there is room."""
    waiting = padded()
    waiting.add(of_length(0, 64), 0.0)
    waiting.ran(stacked(8, 64), 0.1, 0.0)
    waiting.ran_out_of_memory(stacked(8, 64))
    for _ in range(FIRST_PATIENCE):
        waiting.ran(stacked(4, 64), 0.1, 0.0)

    waiting.add(chunk(*range(1, 5), shapes=((64,),)), 0.0)

    assert offsets(waiting.due(0.0)) == [0, 1, 2, 3, 4]


def test_only_so_many_buckets_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without padding, publishers choose the shapes. Requests that wait are run all the same."""
    monkeypatch.setattr(batching, "MOST_REMEMBERED", 2)
    waiting = batcher(max_rows=2)
    for offset in range(6):
        waiting.add(of_length(offset, 1 + offset % 3), float(offset))

    assert len(waiting._by_shapes[MODEL]) <= 2
    assert sorted(at for _ in range(6) if (group := waiting.drain()) for at in offsets(group)) == [*range(6)]


def test_the_batcher_shows_itself() -> None:
    """Its repr shows the rows that wait."""
    waiting = batcher(max_rows=2)
    waiting.add(chunk(0, rows=2), 0.0)
    waiting.add(chunk(1), 0.0)

    assert repr(waiting) == "<Batcher open=[1] full=[2]>"


def test_a_linger_that_learns_says_when_a_group_is_due() -> None:
    """It replaces the policy's linger: at first none, then the one that would have paid off."""
    waiting = Batcher({MODEL: BatchPolicy(64, 1000, 5.0)}, auto=Linger(lambda _kind: 64))
    for at in (0.0, 0.002, 0.5, 0.502):
        waiting.add(chunk(), at)
        assert waiting.due(at) is not None
    for rows in (1, 64):
        waiting.ran(stacked(rows, 1), 0.010, 1.0)

    waiting.look_back(1.0)
    waiting.add(chunk(), 2.0)

    assert waiting.linger == 0.002
    assert waiting.next_due == 2.002


def test_a_linger_looks_back_when_a_batch_is_home() -> None:
    """Earlier, a burst may not be over, and its first request would look alone."""
    waiting = Batcher({MODEL: BatchPolicy(64, 1000, 5.0)}, auto=Linger(lambda _kind: 64))
    for rows in (1, 64):
        waiting.ran(stacked(rows, 1), 0.010, 0.0)
    waiting.look_back(0.0)
    waiting.add(chunk(), 10.0)
    waiting.look_back(10.0)
    for _ in range(9):
        waiting.add(chunk(), 10.001)
    waiting.ran(stacked(1, 1), 0.010, 10.010)

    waiting.look_back(10.010)

    assert waiting.linger == 0.001


def test_a_full_batch_of_single_rows_is_closed_by_what_comes_first() -> None:
    """Rows, bytes or tokens close it; a row larger than a batch may be is a batch by itself."""
    policy = BatchPolicy(10, 1000, 0.0, max_tokens=40)

    assert policy.limit_of_rows(((2,),), 8) == Limit(10, ClosedBy.SIZE)
    assert policy.limit_of_rows(((8,),), 8) == Limit(5, ClosedBy.TOKENS)
    assert policy.limit_of_rows(((2,),), 400) == Limit(2, ClosedBy.BYTES)
    assert policy.limit_of_rows(((2,),), 4000) == Limit(1, ClosedBy.BYTES)


def test_a_chunk_that_fits_goes_whole() -> None:
    """Then nothing of it is copied."""
    waiting, whole = batcher(max_rows=4), chunk(0, 1, 2, 3)
    waiting.add(whole, 0.0)

    group = waiting.due(0.0)

    assert group is not None
    assert group.chunks == [whole]


def test_an_urgent_chunk_that_fills_its_group_goes_before_others() -> None:
    """The full group that is due first goes first."""
    waiting = batcher(max_rows=2, linger=5.0)
    waiting.add(chunk(0, 1), 0.0)
    waiting.add(chunk(2, 3, deadlines=[inf, 2.0]), 1.0)

    assert [offsets(waiting.due(1.0)) for _ in range(2)] == [[2, 3], [0, 1]]


def test_records_that_were_held_back_are_due_at_once() -> None:
    """They have waited already. A group that they fill is full, and one that is due earlier stays so."""
    waiting = batcher(max_rows=2, linger=5.0)
    waiting.add(chunk(0, shapes=WIDE), 0.0)
    waiting.add_late(chunk(1, shapes=WIDE), 1.0)
    waiting.add_late(chunk(2), 1.0)
    assert waiting.next_due == 0.0
    assert offsets(waiting.due(1.0)) == [2]
    assert offsets(waiting.due(1.0)) == [0, 1]

    waiting.add(chunk(3), 1.0)
    assert waiting.next_due == 6.0
    assert waiting.due(7.0)
    waiting.add(chunk(4), 1.0)
    waiting.add_late(chunk(5, 6), 7.0)

    assert waiting.next_due is not None
    assert waiting.next_due <= 7.0
    assert [offsets(waiting.due(7.0)) for _ in range(2)] == [[4, 5], [6]]


def test_each_row_of_a_model_that_lost_rows_runs_alone() -> None:
    """Groups that are open go as they are."""
    waiting = batcher(max_rows=4)
    waiting.add(chunk(0, 1), 0.0)

    waiting.run_alone(MODEL)
    waiting.add(chunk(2, 3, rows=[1, 2]), 1.0)

    groups = [waiting.drain() for _ in range(4)]
    assert [(offsets(group), group.rows) for group in groups if group] == [([0, 1], 2), ([2], 1), ([3], 1), ([3], 1)]


def test_memory_that_ran_out_while_nobody_waits_is_remembered() -> None:
    """The next group is as small as it has to be."""
    waiting = padded(max_rows=4)
    waiting.add(chunk(*range(4), shapes=((64,),)), 0.0)
    assert waiting.backlog == 1
    assert waiting.due(0.0)

    waiting.ran_out_of_memory(stacked(4, 64))
    waiting.add(chunk(*range(4), shapes=((64,),)), 0.0)

    assert waiting.backlog == 2
    assert [offsets(waiting.due(0.0)) for _ in range(2)] == [[0, 1], [2, 3]]


def test_a_model_of_a_fixed_number_of_rows_has_no_limit_by_memory() -> None:
    """A smaller batch would take no less memory."""
    waiting = Batcher({MODEL: BatchPolicy(8, 10_000, 5.0, is_fixed=True)})

    waiting.ran_out_of_memory(stacked(8, 1))
    waiting.add(chunk(*range(8)), 0.0)

    assert offsets(waiting.due(0.0)) == list(range(8))


def test_a_linger_hears_of_a_chunk_as_of_the_batches_that_it_fills() -> None:
    """No batch is larger than its limit, so no arrival is."""
    heard: list[int] = []

    class Hearing(Linger):
        def arrived(self, now: float, kind: BatchKind, rows: int) -> None:
            heard.append(rows)

    waiting = Batcher({MODEL: BatchPolicy(4, 1000, 5.0)}, auto=Hearing(lambda _kind: 4))
    waiting.add(chunk(*range(9)), 0.0)
    waiting.add_late(chunk(9), 0.0)

    assert heard == [4, 4, 1]


def test_a_chunk_is_told_apart_by_the_batches_that_it_will_fill() -> None:
    """The open group gets what it still takes, and a record larger than a batch comes alone."""
    waiting = batcher(max_rows=4, max_bytes=100)
    waiting.add(chunk(0, 1, 2, sizes=10), 0.0)
    later = chunk(*range(3, 10), rows=[1, 1, 2, 1, 9, 4, 1], sizes=[10, 60, 30, 20, 10, 10, 10])

    parts = []
    for kind, part in waiting.by_batch(later):
        parts.append(offsets_of([part]))
        assert kind.shapes == NARROW
        waiting.add(part, 0.0)

    assert parts == [[3], [4, 5], [6], [7], [8], [9]]
