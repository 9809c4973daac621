"""Where a larger batch stops paying for itself."""

from __future__ import annotations

import pytest

from worker.tools.profile.engine.knee import knee


def test_the_knee_is_the_smallest_size_with_nine_tenths_of_the_best() -> None:
    """Beyond it nothing but latency grows."""
    found = knee({1: 100.0, 2: 190.0, 4: 350.0, 8: 450.0, 16: 480.0, 32: 470.0})

    assert found.rows == 8
    assert found.rows_per_s == 450.0
    assert found.share == pytest.approx(450 / 480)
    assert found.gain == 4.5
    assert not found.is_last


def test_a_curve_that_still_rises_has_its_knee_beyond() -> None:
    """The largest size measured is named as such."""
    assert knee({1: 1.0, 2: 2.0, 4: 4.0}).is_last


def test_a_model_that_gains_nothing_has_its_knee_at_one() -> None:
    """Batching buys nothing there."""
    found = knee({1: 100.0, 2: 101.0, 4: 99.0})

    assert (found.rows, found.gain, found.is_last) == (1, 1.0, False)


def test_one_size_alone_says_nothing_of_the_rest() -> None:
    """It is its own knee."""
    assert knee({8: 5.0})[:3] == (8, 5.0, 1.0)


def test_a_single_size_says_nothing_of_larger_ones() -> None:
    """It is the largest measured, as well as the smallest: the curve may do anything beyond."""
    assert knee({1: 100.0}).is_last
