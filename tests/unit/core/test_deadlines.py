"""A deadline tells when an answer is useless, when a batch must be answered, and which records still run."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from tests.chunks import MODEL, P0, batch, chunk, record
from worker.core.chunk import Batch, Chunk, Finished, Prediction, cut
from worker.core.deadlines import Punctuality, answered_late, deadline_of, too_late, triage
from worker.core.failures import Code, RunFailure
from worker.core.records import BatchKind, Timeout
from worker.core.run_times import RunTimes

NOW, WALL = 50.0, 1_000.0
SECOND = Timeout(1.0)
X = BatchKind(MODEL, ((1,),))


def asking(*stamps: float | None, timeouts: list[Timeout | None] | None = None) -> Chunk:
    """A chunk of single rows, published at these instants."""
    records = [record(offset, at=at) for offset, at in enumerate(stamps)]
    return chunk(records=records, timeouts=timeouts or [SECOND] * len(records))


def due(offset: int, deadline: float, rows: int = 1) -> Chunk:
    return chunk(offset, rows=rows, deadlines=[deadline])


@pytest.mark.parametrize(
    ("at", "timeout", "left"),
    [
        (WALL - 0.25, SECOND, 0.75),
        (WALL - 3.0, SECOND, -2.0),
        (WALL + 9.0, SECOND, 1.0),
        (None, SECOND, 1.0),
        (WALL - 0.25, Timeout(None, WALL + 0.5), 0.5),
        (WALL - 0.25, Timeout(None, WALL - 0.5), -0.5),
        (WALL - 0.25, Timeout(1.0, WALL + 0.5), 0.5),
        (WALL - 0.75, Timeout(1.0, WALL + 0.5), 0.25),
    ],
)
def test_a_deadline_counts_from_the_timestamp(at: float | None, timeout: Timeout, left: float) -> None:
    """A timestamp in the future counts as none. If a timeout and an instant are given, the earlier counts."""
    assert deadline_of(record(0, at=at).timestamp_ms, timeout, NOW, WALL) == pytest.approx(NOW + left)


def taking(seconds: float) -> Punctuality:
    """Five rows take so long."""
    times = RunTimes()
    times.note(X, 5, seconds, NOW)
    return Punctuality(lambda: WALL, times=times)


def test_records_that_have_to_wait_are_judged_as_part_of_a_usual_batch() -> None:
    """Others will join them while full groups go before."""
    punctuality, alone = taking(0.4), asking(WALL)
    assert punctuality.sifted(alone, X, 0, NOW) == (alone, [])

    in_time, [late] = punctuality.sifted(asking(WALL), X, 2, NOW)

    assert in_time is None
    assert late.rejection.message.startswith("not run: the deadline is in 1000 ms, and the answer would take 1200 ms")


def home_after(seconds_by_rows: Callable[[int], float]) -> Callable[[int], float]:
    return lambda rows: NOW + seconds_by_rows(rows)


def test_a_batch_that_would_be_late_as_a_whole_goes_smaller() -> None:
    """It runs half the rows, or half of that; the other records would be later still."""
    late = triage([1] * 8, [NOW + 0.3] * 8, home_after(lambda rows: rows / 10))

    assert late == dict.fromkeys(range(2, 8), NOW + 0.8)


def test_a_batch_in_time_is_left_as_it_is() -> None:
    """Nothing is copied."""
    chunks = [chunk(0, 1, deadlines=[NOW + 9.0, inf]), chunk(2)]
    punctuality = taking(0.5)

    assert punctuality.triaged(chunks, X, NOW) == (chunks, [])
    assert punctuality.triaged(chunks[1:], X, NOW) == (chunks[1:], [])


@pytest.mark.parametrize(
    ("left", "needs", "says"),
    [
        (-1.5, 0.02, "not run: the deadline was 1500 ms ago"),
        (-0.0005, 0.02, "not run: the deadline was 0.5 ms ago"),
        (0.012, 0.25, "not run: the deadline is in 12 ms, and the answer would take 250 ms"),
    ],
)
def test_the_answer_says_how_late_it_is(left: float, needs: float, says: str) -> None:
    """The message also says how much time was left and how much the answer would have needed."""
    _, _, rejection = too_late(chunk(0, 1, deadlines=[inf, NOW + left]), 1, NOW, NOW + needs)

    assert (rejection.code, rejection.message) == (Code.DEADLINE_EXCEEDED, says)
    assert (rejection.record.partition, rejection.record.offset) == (P0, 1)


@pytest.mark.parametrize(
    ("timeout", "says"),
    [
        (Timeout(0.005), "not run: the deadline was 1000 ms ago (timeout-ms 5, from the timestamp 1764000000)"),
        (Timeout(None, WALL), "not run: the deadline was 1000 ms ago"),
    ],
)
def test_the_answer_says_what_was_asked_for(timeout: Timeout, says: str) -> None:
    """A client that sends a timestamp in seconds instead of milliseconds makes every request late."""
    late = chunk(records=[record(1, at=1_764_000.0)], timeouts=[timeout], deadlines=[NOW - 1.0])

    assert too_late(late, 0, NOW, NOW).rejection.message == says


def test_late_answers_are_counted_by_record() -> None:
    """Each record of a chunk counts by its own deadline."""
    chunks = [chunk(0, 1, 2, deadlines=[NOW - 0.1, NOW + 1.0, NOW - 0.2]), due(7, NOW - 1.0), due(8, inf), chunk(9)]

    assert answered_late(chunks, NOW) == 3


def test_a_late_answer_of_many_pieces_counts_once() -> None:
    """It counts when the last piece is finished, since there is no answer before."""
    pieces = cut(due(0, NOW - 1.0, rows=6), 2)
    assert answered_late(pieces, NOW) == 0

    for piece in pieces:
        assert piece.reassembly is not None
        piece.reassembly.collect(piece, Prediction(piece, ()))

    assert answered_late(pieces[2:], NOW) == 1


# ---- Forecasts ------------------------------------------------------------------------------------------------------


def of(rows: int = 4) -> Batch:
    return batch(chunk(0, rows=rows))


def forecasting(lanes: int = 1, *, is_new: bool = False) -> Punctuality:
    """Four rows take 0.1 s, measured at second 10; nothing is known with `is_new`."""
    times = RunTimes()
    if not is_new:
        times.note(X, 4, 0.1, 10.0)
    punctuality = Punctuality(lambda: WALL, lanes, times)
    punctuality.is_asked_for = True
    return punctuality


def ran(batch: Batch, seconds: float | None) -> Finished:
    """The result of a batch that ran for so long; None: it failed."""
    return Finished(batch, None, None if seconds else RunFailure("no"), seconds or 0.0)


def around(*seconds: float) -> object:
    return pytest.approx(seconds[0] if len(seconds) == 1 else seconds, abs=0.002)


def test_a_batch_waits_for_those_before_it() -> None:
    """It waits for the rest of the running batch, and for all batches that have not begun."""
    punctuality, first, second = forecasting(), of(), of()
    assert punctuality.finished_at(10.0, X, 4) == around(10.1)
    punctuality.handed_out(first, 10.0)
    punctuality.handed_out(second, 10.02)
    assert punctuality.finished_at(10.04, X, 4) == around(10.3)

    punctuality.returned([ran(first, None)], 10.15)

    assert punctuality.finished_at(10.15, X, 4) == around(10.35)


def test_several_lanes_share_the_queue() -> None:
    """A batch waits only when all lanes are busy."""
    punctuality, first, second = forecasting(lanes=2), of(), of()
    punctuality.handed_out(first, 10.0)
    assert punctuality.finished_at(10.0, X, 4) == around(10.1)
    punctuality.handed_out(second, 10.0)
    assert punctuality.finished_at(10.0, X, 4) == around(10.2)


def test_forecasts_grow_by_their_error() -> None:
    """If answers are written 20 ms after each run, forecasts for a busy lane become 20 ms longer."""
    punctuality, now = forecasting(), 10.0
    needed = punctuality.needed(X, 4)
    for _ in range(60):
        done = of()
        punctuality.handed_out(done, now)
        punctuality.returned([ran(done, 0.1)], now + 0.1)
        punctuality.answered(done, now + 0.12)
        now += 0.2

    punctuality.handed_out(of(), now)

    assert punctuality.finished_at(now, X, 4) == around(now + 0.22)
    assert punctuality.needed(X, 4) == around(needed + 0.02)
    assert repr(punctuality).startswith("<Punctuality is_asked_for=True out=1 margin=2")


def test_a_group_goes_early_enough_to_be_found_in_time() -> None:
    """A group closes a little earlier than its forecast at the hand-out demands."""
    goes_at = 20.0 - forecasting().needed(X, 4)

    assert forecasting().finished_at(goes_at + 0.002, X, 4) < 20.0


def test_a_run_that_failed_and_the_warm_up_batch_teach_nothing() -> None:
    """The halves of the failed batch are forecast anew."""
    punctuality, failing = forecasting(), of()
    punctuality.handed_out(failing, 10.0)
    punctuality.returned([ran(failing, None), Finished(None, None, None, 0.5)], 11.0)

    punctuality.failed(failing)

    assert punctuality.finished_at(11.0, X, 4) == around(11.1)
    assert "out=0 margin=0ms" in repr(punctuality)


def test_a_forecast_that_nothing_has_confirmed_for_long_is_not_believed() -> None:
    """One batch may run to find out when the lanes are empty; meanwhile the others are judged as before."""
    punctuality = forecasting()
    assert punctuality.finished_at(11.9, X, 4) == around(12.0)
    assert punctuality.finished_at(12.1, X, 4) == 12.1

    punctuality.handed_out(of(), 12.1)

    assert punctuality.finished_at(12.1, X, 4) == around(12.3)


def test_the_first_batch_of_unknown_shapes_runs() -> None:
    """The next batches are judged with care: one run says little about the next."""
    punctuality, first = forecasting(is_new=True), of()
    assert punctuality.finished_at(10.0, X, 4) == 10.0

    punctuality.handed_out(first, 10.0)
    punctuality.returned([ran(first, 0.3)], 10.3)
    punctuality.answered(first, 10.35)

    assert punctuality.needed(X, 4) == pytest.approx(0.63, abs=0.01)


def test_the_answers_of_a_batch_that_are_late_are_counted() -> None:
    """Before any record asked for a deadline, none is looked for."""
    late = batch(due(0, 10.0), due(1, 99.0))
    punctuality = forecasting()
    punctuality.handed_out(late, 10.0)
    punctuality.returned([ran(late, 0.1)], 10.1)
    assert punctuality.answered(late, 10.12) == 1

    asks_for_nothing = Punctuality(lambda: WALL)
    asks_for_nothing.handed_out(late, 10.0)
    asks_for_nothing.returned([ran(late, 0.1)], 10.1)
    assert asks_for_nothing.answered(late, 10.12) == 0
    assert "out=0" in repr(asks_for_nothing)
