"""When a batch would be home."""

from __future__ import annotations

import pytest

from tests.builders import batch, request
from tests.fakes import MODEL
from worker.core.deadlines.forecast import Outlook
from worker.core.deadlines.punctuality import Punctuality
from worker.core.deadlines.run_times import RunTimes
from worker.core.failures import RunFailure
from worker.core.records import Batch, BatchKind, Finished

X = BatchKind(MODEL, ((1,),))


def of(rows: int = 4) -> Batch:
    return batch(request(0, rows=rows))


def outlook_of(lanes: int = 1) -> Outlook:
    """Four rows take 0.1 s, known well since just now, second 10."""
    times = RunTimes()
    for _ in range(60):
        times.note(X, 4, 0.1, 10.0)
    return Outlook(lanes, times)


def home(batch: Batch, seconds: float | None) -> Finished:
    """The batch ran for so long; None: it failed."""
    return Finished(batch, None, None if seconds else RunFailure("no"), seconds or 0.0, MODEL)


def around(seconds: float) -> object:
    return pytest.approx(seconds, abs=0.002)


def test_an_idle_lane_takes_a_batch_at_once() -> None:
    """It is home when it has run."""
    assert outlook_of().finished_at(10.0, X, 4) == around(10.1)


def test_a_batch_waits_for_those_before_it() -> None:
    """For what is left of the one that runs, and for the whole of those that have not begun."""
    outlook, first, second = outlook_of(), of(), of()
    outlook.handed_out(first, 10.0)
    outlook.handed_out(second, 10.02)

    assert outlook.finished_at(10.04, X, 4) == around(10.3)
    assert outlook.finished_at(10.5, X, 4) == around(10.7)


def test_the_next_one_begins_when_the_one_before_is_home() -> None:
    """However long that took."""
    outlook, first, second = outlook_of(), of(), of()
    outlook.handed_out(first, 10.0)
    outlook.handed_out(second, 10.0)

    outlook.returned([home(first, None)], 10.15)

    assert outlook.finished_at(10.15, X, 4) == around(10.35)


def test_a_batch_goes_to_the_lane_that_is_free_first() -> None:
    """Of several."""
    outlook, batches = outlook_of(lanes=2), [of() for _ in range(4)]
    outlook.handed_out(batches[0], 10.0)
    assert outlook.finished_at(10.0, X, 4) == around(10.1)
    outlook.handed_out(batches[1], 10.06)
    assert outlook.finished_at(10.06, X, 4) == around(10.2)
    outlook.handed_out(batches[2], 10.06)
    assert outlook.finished_at(10.06, X, 4) == around(10.26)
    outlook.handed_out(batches[3], 10.06)
    assert outlook.finished_at(10.06, X, 4) == around(10.3)

    outlook.returned([home(batches[3], None)], 10.08)  # before its turn: the forecast was another

    assert outlook.finished_at(10.08, X, 4) == around(10.26)


def test_a_request_waits_for_the_full_groups_before_it() -> None:
    """And then has company; where nothing is before it, it may be alone."""
    outlook = outlook_of()

    assert outlook.finished_if_joined(10.0, X, 1, backlog=0) == around(10.1)
    assert outlook.finished_if_joined(10.0, X, 1, backlog=2) == around(10.3)
    outlook.handed_out(of(), 10.0)
    assert outlook.finished_if_joined(10.0, X, 1, backlog=0) == around(10.2)


def test_what_forecasts_missed_is_learned() -> None:
    """Answers that are written 20 ms after the runs are home make each forecast of a busy lane 20 ms longer."""
    outlook, now = outlook_of(), 10.0
    needed = outlook.needed(X, 4)
    for _ in range(40):
        done = of()
        outlook.handed_out(done, now)
        outlook.returned([home(done, 0.1)], now + 0.1)
        outlook.answered(done, now + 0.12)
        now += 0.2

    outlook.handed_out(of(), now)

    assert outlook.finished_at(now, X, 4) == around(now + 0.22)
    assert outlook.needed(X, 4) == around(needed + 0.02)
    assert repr(outlook).startswith("<Outlook out=1 margin=2")


def test_a_group_goes_early_enough_to_be_found_in_time() -> None:
    """What a group is closed by asks for more than what it is judged by when it is handed out."""
    outlook = outlook_of()
    deadline = 20.0

    goes_at = deadline - outlook.needed(X, 4)

    assert outlook.finished_at(goes_at + 0.002, X, 4) < deadline


def test_the_warm_up_batch_is_nobodys() -> None:
    """It comes home without having been handed out."""
    outlook = outlook_of()

    outlook.returned([Finished(None, None, None, 0.5, MODEL)], 10.5)

    assert outlook.finished_at(10.5, X, 4) == around(10.6)


def test_a_run_that_failed_teaches_nothing() -> None:
    """Its halves are forecast anew."""
    outlook, failing = outlook_of(), of()
    outlook.handed_out(failing, 10.0)
    outlook.returned([home(failing, None)], 11.0)

    outlook.failed(failing)

    assert outlook.finished_at(11.0, X, 4) == around(11.1)
    assert "out=0 margin=0ms" in repr(outlook)


def test_what_nothing_has_confirmed_for_long_is_not_believed() -> None:
    """With nothing in the lanes one batch may find out; while it does, the others are judged as before."""
    outlook = outlook_of()
    assert outlook.finished_at(11.9, X, 4) == around(12.0)
    assert outlook.finished_at(12.1, X, 4) == 12.1

    outlook.handed_out(of(), 12.1)

    assert outlook.finished_at(12.1, X, 4) == around(12.3)


def test_of_unknown_shapes_the_first_batch_runs() -> None:
    """Whatever has to be answered when: nobody can know."""
    outlook = Outlook()
    first = of()

    assert outlook.finished_at(10.0, X, 4) == 10.0
    outlook.handed_out(first, 10.0)
    outlook.returned([home(first, 0.3)], 10.3)
    outlook.answered(first, 10.35)

    assert "margin=0ms" in repr(outlook)  # nothing was forecast that could have been missed


def test_who_decides_says_whether_anybody_asked() -> None:
    """Of a worker without deadlines: nobody did."""
    punctuality = Punctuality(Outlook(), lambda: 0.0)

    assert repr(punctuality).startswith("<Punctuality is_asked_for=False <Outlook out=0")
