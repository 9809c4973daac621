"""Inference times, learned from each run that succeeds."""

from __future__ import annotations

import pytest

from tests.chunks import MODEL
from worker.core.records import BatchKind, ModelKey
from worker.core.run_times import RunTimes

X, Y = BatchKind(MODEL, ((16,),)), BatchKind(MODEL, ((32,),))


def times_of(*runs: tuple[int, float], most_kinds: int = 4) -> RunTimes:
    """Run times of kind X, learned from pairs of rows and seconds."""
    times = RunTimes(most_kinds)
    for at, (rows, seconds) in enumerate(runs):
        times.note(X, rows, seconds, float(at))
    return times


def test_nothing_is_known_of_what_never_ran() -> None:
    """This holds for other shapes, and for another version of the model, as after a swap."""
    times = times_of((4, 0.1))

    for kind in (Y, X._replace(model=ModelKey("m", "2"))):
        assert (times.mean(kind, 4), times.usual_rows(kind), times.noted_at(kind)) == (0.0, 1, None)


def test_one_hiccup_is_no_rule() -> None:
    """A run that took a hundred times as long does not even double the mean."""
    assert times_of(*[(4, 0.1)] * 40, (4, 10.0)).mean(X, 4) < 0.2


def test_a_device_that_has_become_slower_is_known_soon() -> None:
    """Two dozen runs are enough, also for a device that has become faster."""
    slower = times_of(*[(4, 0.1)] * 40, *[(4, 0.8)] * 24)
    quicker = times_of(*[(4, 0.8)] * 40, *[(4, 0.1)] * 24)

    assert slower.mean(X, 4) > 0.7
    assert quicker.mean(X, 4) < 0.15


def test_as_many_kinds_are_remembered_as_are_allowed() -> None:
    """The kinds that ran last are kept."""
    times = times_of((1, 0.1), most_kinds=2)
    times.note(Y, 1, 0.2, 1.0)
    times.note(X, 1, 0.1, 2.0)

    times.note(BatchKind(MODEL, ((64,),)), 1, 0.3, 3.0)

    assert times.mean(Y, 1) == 0.0
    assert times.noted_at(X) == 2.0


def test_it_knows_the_usual_run() -> None:
    """This is the usual number of rows in a batch of a kind."""
    times = times_of(*[(8, 0.1)] * 20, *[(4, 0.2)] * 40)

    assert times.usual_rows(X) == 4


@pytest.mark.parametrize(("rows", "seconds"), [(1, 0.1), (2, 0.1), (3, 0.2), (6, 0.5), (10, 0.9), (40, 3.9)])
def test_the_mean_goes_along_a_line(rows: int, seconds: float) -> None:
    """The line connects the known points and continues beyond them; fewer rows than ever ran cost no less."""
    times = times_of(*[(2, 0.1)] * 9, *[(4, 0.3)] * 9, *[(10, 0.9)] * 9)

    assert times.mean(X, rows) == pytest.approx(seconds)


def test_more_rows_never_take_less_in_the_mean() -> None:
    """This holds for any measurements. A flat measurement stays flat for more rows than ever ran."""
    times = times_of((1, 0.1), (2, 0.5), (4, 0.3), (8, 0.2), (16, 0.9))
    constant = times_of((1, 0.2), (2, 0.21), (8, 0.2))

    assert [times.mean(X, rows) for rows in (1, 2, 4, 8, 16)] == pytest.approx([0.1, 0.2, 0.2, 0.2, 0.9])
    assert constant.mean(X, 64) == pytest.approx(0.2)
