"""Deadlines under any clocks, and the choice of requests that run, for any timeouts."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tests.chunks import MODEL, chunk, offsets, record
from tests.meeting import meeting, met
from worker.core.chunk import Chunk
from worker.core.deadlines import Punctuality, deadline_of, triage
from worker.core.records import BatchKind, Timeout
from worker.core.run_times import RunTimes

SECONDS = st.integers(1, 10_000_000).map(lambda ms: ms / 1000)
INSTANTS = st.integers(1_000_000_000_000, 2_000_000_000_000).map(lambda ms: ms / 1000)
STAMPS = st.none() | INSTANTS
TIMEOUTS = st.builds(Timeout, SECONDS, st.none()) | st.builds(Timeout, st.none() | SECONDS, INSTANTS)
NOWS = st.floats(0.0, 1e7)
WIGGLE = 1e-3  # a float's last bits, of seconds since the epoch


@meeting("no timestamp", "a timestamp that lies ahead", "a timestamp that lies back")
@given(STAMPS, SECONDS, NOWS, INSTANTS)
def test_nobody_has_more_time_than_was_asked_for(at: float | None, seconds: float, now: float, wall: float) -> None:
    """No age is below 0, whatever the publisher's clock says; without a timestamp the age is 0."""
    deadline = deadline_of(record(0, at=at).timestamp_ms, Timeout(seconds), now, wall)

    met("no timestamp", is_so=at is None)
    met("a timestamp that lies ahead", is_so=at is not None and at > wall)
    met("a timestamp that lies back", is_so=at is not None and at < wall)
    assert deadline <= now + seconds
    if at is None or at >= wall:
        assert deadline == now + seconds


@meeting("deadlines that differ")
@given(INSTANTS, INSTANTS, TIMEOUTS, NOWS, INSTANTS)
def test_the_older_is_the_more_urgent(one: float, other: float, timeout: Timeout, now: float, wall: float) -> None:
    """This holds for two requests with equal timeouts."""
    deadlines = [deadline_of(record(0, at=at).timestamp_ms, timeout, now, wall) for at in sorted([one, other])]

    met("deadlines that differ", is_so=deadlines[0] != deadlines[1])
    assert deadlines == sorted(deadlines)


@meeting("the timestamp lies back", "the timestamp lies ahead", "an instant is asked for")
@given(INSTANTS, TIMEOUTS, NOWS, INSTANTS, st.floats(0.0, 1e4))
def test_waiting_brings_no_time(at: float, timeout: Timeout, now: float, wall: float, waited: float) -> None:
    """A later question gets an equal deadline; with a timestamp in the future perhaps a later one, never an earlier."""
    first = deadline_of(record(0, at=at).timestamp_ms, timeout, now, wall)
    later = deadline_of(record(0, at=at).timestamp_ms, timeout, now + waited, wall + waited)

    met("the timestamp lies back" if at <= wall else "the timestamp lies ahead", is_so=waited > 0)
    met("an instant is asked for", is_so=timeout.until is not None)
    assert later >= first - WIGGLE
    if at <= wall:
        assert later <= first + WIGGLE


@meeting("some are in time and some are not", "all ask for the same", "some ask for nothing")
@given(st.lists(st.tuples(STAMPS, st.none() | TIMEOUTS), min_size=1, max_size=12), NOWS, INSTANTS, st.data())
def test_each_record_of_a_chunk_is_judged_by_its_own_deadline(
    asked: list[tuple[float | None, Timeout | None]], now: float, wall: float, data: st.DataObject
) -> None:
    """The records in time go on in order, with their deadlines, and each of the others is refused once."""
    whole = chunk_asking(asked)
    alone = [
        inf if timeout is None else deadline_of(one.timestamp_ms, timeout, now, wall)
        for one, (_, timeout) in zip(whole.records, asked, strict=True)
    ]
    earliest = data.draw(st.sampled_from([*alone, now]))

    in_time, late = Foretold(lambda: wall, earliest).sifted(whole, BatchKind(MODEL, ((1,),)), 0, now)

    kept = [at for at, deadline in enumerate(alone) if deadline >= earliest]
    met("some are in time and some are not", is_so=bool(kept) and bool(late))
    met("all ask for the same", is_so=len(asked) > 1 and len({timeout for _, timeout in asked} - {None}) == 1)
    met("some ask for nothing", is_so=0 < [timeout for _, timeout in asked].count(None) < len(asked))
    assert offsets([in_time] if in_time else []) == kept
    assert in_time is None or list(in_time.deadlines or ()) == [alone[at] for at in kept]
    assert [one.rejection.record.offset for one in late] == [at for at in range(len(asked)) if at not in kept]
    assert all(one.chunk.records[one.at] is one.rejection.record for one in late)


@meeting("some run and some are late", "none runs", "a chunk loses some")
@given(
    st.lists(st.lists(st.floats(0.0, 2.0) | st.just(inf), min_size=1, max_size=5), min_size=1, max_size=4),
    st.floats(0.0, 2.0),
    st.booleans(),
)
def test_a_batch_loses_the_records_that_are_late_and_no_other(
    deadlines: list[list[float]],
    takes: float,
    has_more: bool,  # noqa: FBT001  # drawn
) -> None:
    """Records that run are in time and in order, each in its chunk; each other record is refused once."""
    chunks: list[Chunk] = []
    for of_chunk in deadlines:
        first = len(offsets(chunks))
        chunks.append(chunk(*range(first, first + len(of_chunk)), deadlines=of_chunk))
    count = len(offsets(chunks))
    if has_more:
        chunks.append(chunk(count, count + 1))
    all_deadlines = [each for of_chunk in deadlines for each in of_chunk] + [inf, inf] * has_more
    kind, times = BatchKind(MODEL, ((1,),)), RunTimes()
    times.note(kind, 1, takes, 0.0)
    punctuality = Punctuality(lambda: 0.0, times=times)

    running, late = punctuality.triaged(chunks, kind, 0.0)

    ran, refused = offsets(running), [one.rejection.record.offset for one in late]
    met("some run and some are late", is_so=bool(ran and refused))
    met("none runs", is_so=not ran)
    met("a chunk loses some", is_so=any(0 < len(set(offsets([one])) & set(refused)) < len(one) for one in chunks))
    assert sorted([*ran, *refused]) == list(range(len(all_deadlines)))
    assert ran == sorted(ran)
    at = punctuality.finished_at(0.0, kind, len(ran))
    assert all(all_deadlines[offset] >= at for offset in ran)
    assert all(one.chunk.records[one.at] is one.rejection.record for one in late)
    assert [d for one in running for d in one.deadlines or [inf] * len(one)] == [
        all_deadlines[offset] for offset in ran
    ]


class Foretold(Punctuality):
    """Expects every request to be answered at one instant."""

    def __init__(self, wall_clock: Callable[[], float], answered_at: float) -> None:
        super().__init__(wall_clock)
        self._answered_at = answered_at

    def _finished_if_joined(self, *_: object) -> float:
        return self._answered_at


def chunk_asking(asked: list[tuple[float | None, Timeout | None]]) -> Chunk:
    records = [record(offset, at=at) for offset, (at, _) in enumerate(asked)]
    return chunk(records=records, timeouts=[timeout for _, timeout in asked])


@meeting("some run and some are late", "fewer run because all would be late", "none runs")
@given(
    st.lists(st.tuples(st.none() | st.floats(0.0, 2.0), st.integers(1, 9)), min_size=1, max_size=12)
    | st.lists(st.tuples(st.floats(0.1, 1.5), st.integers(1, 9)), min_size=2, max_size=12),  # all of them in a hurry
    st.floats(0.0, 1.0),
    st.floats(0.0, 0.2),
)
def test_who_runs_is_in_time_and_who_does_not_is_not(
    asked: list[tuple[float | None, int]], fixed: float, each: float
) -> None:
    """Each request is judged once; the runs keep their order; a rejected request would really be late."""
    deadlines = [inf if deadline is None else deadline for deadline, _ in asked]
    rows = [count for _, count in asked]

    late = triage(rows, deadlines, lambda rows: fixed + rows * each)

    whole = fixed + sum(rows) * each
    running = [index for index in range(len(asked)) if index not in late]
    met("some run and some are late", is_so=bool(running and late))
    met("none runs", is_so=not running)
    met("fewer run because all would be late", is_so=max(deadlines) < whole and bool(running))

    finished_at = fixed + sum(rows[index] for index in running) * each
    assert all(deadlines[index] >= finished_at for index in running)
    assert all(deadlines[index] < at for index, at in late.items())


@meeting("more shapes than are remembered", "one shape again")
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 300), st.floats(1e-5, 100.0)), max_size=60),
    st.integers(1, 300),
)
def test_expectations_are_bounded_by_what_was_seen(runs: list[tuple[int, int, float]], rows: int) -> None:
    """They are never negative, cover no more shapes than allowed, and are 0 for unknown shapes."""
    times, kinds = RunTimes(most_kinds=3), [BatchKind(MODEL, ((shape,),)) for shape in range(6)]
    for at, (shape, batch_rows, seconds) in enumerate(runs):
        times.note(kinds[shape], batch_rows, seconds, float(at))

    known = [shape for shape in range(6) if times.noted_at(kinds[shape]) is not None]

    met("more shapes than are remembered", is_so=len({shape for shape, _, _ in runs}) > 3)
    met("one shape again", is_so=len(runs) > len({shape for shape, _, _ in runs}))
    assert len(known) == min(3, len({shape for shape, _, _ in runs}))
    for shape in range(6):
        longest = max((seconds for kind, _, seconds in runs if kind == shape), default=0.0)
        assert (times.mean(kinds[shape], rows) > 0) == (shape in known)
        assert times.mean(kinds[shape], 1) <= longest
