"""How long inferences take, learned from each that succeeds."""

from __future__ import annotations

import pytest

from tests.fakes import MODEL
from worker.core.deadlines.run_times import RunTimes
from worker.core.records import BatchKind, ModelKey

X, Y = BatchKind(MODEL, ((16,),)), BatchKind(MODEL, ((32,),))


def times_of(*runs: tuple[int, float], most_kinds: int = 4) -> RunTimes:
    """Of kind X: rows and seconds."""
    times = RunTimes(most_kinds)
    for at, (rows, seconds) in enumerate(runs):
        times.note(X, rows, seconds, float(at))
    return times


def test_nothing_is_expected_of_what_is_not_known() -> None:
    """Neither a time, nor rows, nor when it last ran."""
    times = times_of((4, 0.1))

    assert (times.expected(Y, 4), times.usual_rows(Y), times.noted_at(Y)) == (0.0, 1, None)


def test_the_times_of_one_model_say_nothing_of_another() -> None:
    """Another version in the same shapes, as after a swap."""
    times = times_of((4, 0.1))

    assert times.expected(X._replace(model=ModelKey("m", "2")), 4) == 0.0


def test_a_steady_time_is_expected_as_it_is() -> None:
    """The first run might have been any; with each that is like it the doubt becomes less."""
    once, often = times_of((4, 0.1)), times_of(*[(4, 0.1)] * 40)

    assert once.expected(X, 4) == pytest.approx(0.2)
    assert often.expected(X, 4) == pytest.approx(0.1, rel=0.01)


def test_most_runs_take_no_longer_than_expected() -> None:
    """Where they vary, what is expected lies above their mean; on request, it is the mean."""
    times = times_of(*[(4, 0.08), (4, 0.12)] * 30)

    assert 0.12 <= times.expected(X, 4) <= 0.16
    assert times.expected(X, 4, deviations=0.0) == pytest.approx(0.1, rel=0.05)


def test_rows_of_one_power_of_two_are_one_class() -> None:
    """Five rows cost as eight do."""
    times = times_of(*[(8, 0.1)] * 40)

    assert times.expected(X, 5) == times.expected(X, 8)


@pytest.mark.parametrize(("rows", "seconds"), [(1, 0.1), (2, 0.1), (4, 0.2), (8, 0.3), (16, 0.3), (32, 0.6)])
def test_unknown_classes_are_estimated_by_their_neighbours(rows: int, seconds: float) -> None:
    """More rows never take less time, and twice the rows not more than twice the time."""
    times = times_of(*[(2, 0.1)] * 60, *[(16, 0.3)] * 60)

    assert times.expected(X, rows) == pytest.approx(seconds, rel=0.01)


def test_one_hiccup_is_no_rule() -> None:
    """A run that took a hundred times as long moves what is expected by less than one time."""
    times = times_of(*[(4, 0.1)] * 40, (4, 10.0))

    assert times.expected(X, 4) < 0.2


def test_a_device_that_has_become_slower_is_known_soon() -> None:
    """After two dozen runs; so is one that has become quicker."""
    slower = times_of(*[(4, 0.1)] * 40, *[(4, 0.8)] * 24)
    quicker = times_of(*[(4, 0.8)] * 40, *[(4, 0.1)] * 24)

    assert slower.expected(X, 4) > 0.7
    assert quicker.expected(X, 4) < 0.25


def test_as_many_kinds_are_remembered_as_are_allowed() -> None:
    """Those that ran last."""
    times = times_of((1, 0.1), most_kinds=2)
    times.note(Y, 1, 0.2, 1.0)
    times.note(X, 1, 0.1, 2.0)

    times.note(BatchKind(MODEL, ((64,),)), 1, 0.3, 3.0)

    assert times.expected(Y, 1) == 0.0
    assert times.noted_at(X) == 2.0


def test_it_knows_what_is_usual() -> None:
    """How many rows a batch of some kind has, and how long a run of any takes."""
    times = times_of(*[(8, 0.1)] * 20, *[(4, 0.2)] * 40)

    assert times.usual_rows(X) == 4
    assert times.typical == pytest.approx(0.2, rel=0.01)
    assert repr(times) == "<RunTimes kinds=1 typical=200ms>"


@pytest.mark.parametrize(("rows", "seconds"), [(1, 0.1), (2, 0.1), (3, 0.2), (6, 0.5), (10, 0.9), (40, 3.9)])
def test_the_mean_goes_along_a_line(rows: int, seconds: float) -> None:
    """Through what is known and on beyond it; fewer rows than ever ran take no less."""
    times = times_of(*[(2, 0.1)] * 9, *[(4, 0.3)] * 9, *[(10, 0.9)] * 9)

    assert times.mean(X, rows) == pytest.approx(seconds)


def test_the_mean_of_a_single_size_grows_with_the_rows() -> None:
    """No more is known of it; and nothing of other shapes."""
    times = times_of((4, 0.2))

    assert times.mean(X, 8) == pytest.approx(0.4)
    assert times.mean(X, 2) == pytest.approx(0.2)
    assert times.mean(Y, 4) == 0.0


def test_more_rows_never_take_less_in_the_mean() -> None:
    """Whatever chance has measured: neighbours out of order share their mean."""
    times = times_of((1, 0.1), (2, 0.5), (4, 0.3), (8, 0.1), (16, 0.9))

    assert [times.mean(X, rows) for rows in (1, 2, 4, 8, 16)] == pytest.approx([0.1, 0.3, 0.3, 0.3, 0.9])


def test_a_model_that_takes_as_long_for_any_rows_is_known_as_that() -> None:
    """More rows than ever ran are no reason for more time."""
    times = times_of((1, 0.2), (2, 0.21), (8, 0.19))

    assert times.mean(X, 64) == pytest.approx(0.2)
