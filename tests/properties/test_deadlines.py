"""Deadlines under any clocks, and the choice of requests that run, for any timeouts."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import floats, record, request
from tests.fakes import MODEL
from tests.meeting import meeting, met
from worker.core.deadlines import Punctuality, deadline_of, most_urgent, triage
from worker.core.records import BatchKind, Record, Reply, Timeout
from worker.core.run_times import RunTimes
from worker.core.runs import Run, run_of

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
def test_a_run_is_judged_as_its_records_are(
    asked: list[tuple[float | None, Timeout | None]], now: float, wall: float, data: st.DataObject
) -> None:
    """Its deadline is the earliest; taken apart, each record is judged by its own deadline, in order."""
    run = run_asking(asked)
    alone = [
        float("inf") if timeout is None else deadline_of(single.record.timestamp_ms, timeout, now, wall)
        for single, (_, timeout) in zip(run.singles(), asked, strict=True)
    ]
    earliest = data.draw(st.sampled_from([*alone, now]))

    judged: list[tuple[Record, bool]] = []
    for part in Foretold(lambda: wall, earliest).sifted(run, BatchKind(MODEL, ((1,),)), 0, now):
        if isinstance(part, Run):
            judged += [(one, True) for one in part.records]
        else:
            judged += [(refused.record, False) for _, refused in part]

    assert most_urgent(run, now, wall) == min(alone)
    assert [one for one, _ in judged] == list(run.records)
    met("some are in time and some are not", is_so=len({is_in_time for _, is_in_time in judged}) > 1)
    met("all ask for the same", is_so=len(asked) > 1 and len({timeout for _, timeout in asked} - {None}) == 1)
    met("some ask for nothing", is_so=0 < [timeout for _, timeout in asked].count(None) < len(asked))
    assert [is_in_time for _, is_in_time in judged] == [deadline >= earliest for deadline in alone]


class Foretold(Punctuality):
    """Expects every request to be answered at one instant."""

    def __init__(self, wall_clock: Callable[[], float], answered_at: float) -> None:
        super().__init__(wall_clock)
        self._answered_at = answered_at

    def _finished_if_joined(self, *_: object) -> float:
        return self._answered_at


def run_asking(asked: list[tuple[float | None, Timeout | None]]) -> Run:
    records = [record(offset, at=at) for offset, (at, _) in enumerate(asked)]
    timeouts = [timeout for _, timeout in asked]
    values, sizes = [floats(1.0)] * len(records), [4] * len(records)
    return run_of(records, values, 1, ((1,),), [Reply("raw")] * len(records), sizes, MODEL, timeouts)


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
    requests = [request(at, rows=rows) for at, (_, rows) in enumerate(asked)]
    for one, (deadline, _) in zip(requests, asked, strict=True):
        one.deadline = deadline

    running, late = triage(requests, lambda rows: fixed + rows * each)

    whole = fixed + sum(one.rows for one in requests) * each
    met("some run and some are late", is_so=bool(running and late))
    met("none runs", is_so=not running)
    are_all_late = all(one.deadline is not None and one.deadline < whole for one in requests)
    met("fewer run because all would be late", is_so=are_all_late and bool(running))

    assert sorted([*map(id, running), *(id(one) for one, _ in late)]) == sorted(map(id, requests))
    assert [one.record.offset for one in running] == sorted(one.record.offset for one in running)
    finished_at = fixed + sum(one.rows for one in running) * each
    assert all(one.deadline is None or one.deadline >= finished_at for one in running)
    assert all(one.deadline is not None and one.deadline < at for one, at in late)


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
