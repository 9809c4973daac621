"""What was measured, asked for any number of rows."""

from __future__ import annotations

import pytest

from tests.unit.tools.profile.builders import measured, steady
from worker.tools.profile.engine.costs import (
    ANSWER_SECONDS,
    BATCH_SECONDS,
    HAND_OVER_SECONDS,
    TAKE_SECONDS,
    MeasuredCosts,
)


def test_luck_picks_among_the_inferences_that_were_measured() -> None:
    """From the quickest to the slowest, each as likely as it was."""
    costs = MeasuredCosts(measured({4: [2.0, 1.0, 4.0, 3.0]}))

    assert [costs.run(4, luck) for luck in (0.0, 0.25, 0.5, 0.99)] == [1.0, 2.0, 3.0, 4.0]


def test_between_two_sizes_the_cost_lies_between_both() -> None:
    """In proportion to the rows, at the same luck."""
    costs = MeasuredCosts(measured({1: [1.0, 2.0], 5: [3.0, 6.0]}))

    assert costs.run(2, 0.0) == pytest.approx(1.5)
    assert costs.run(2, 0.9) == pytest.approx(3.0)


def test_fewer_rows_than_were_measured_cost_as_much_as_the_fewest() -> None:
    """Rather too much than too little."""
    assert MeasuredCosts(steady([8, 16], fixed=3.0)).run(2, 0.5) == 3.0


def test_a_stall_belongs_to_the_machine_and_not_to_the_size_that_it_met() -> None:
    """One stall of 9.9 s in 33 s of inferences comes every 33 s, whichever size runs; a longer run meets it sooner."""
    costs = MeasuredCosts(measured({1: [0.1] * 300, 2: [0.1] * 29 + [10.0]}))

    assert costs.run(1, 0.99) == pytest.approx(0.1)
    assert costs.run(1, 0.998) == pytest.approx(10.0)
    assert costs.run(2, 0.99) == pytest.approx(0.1)


def test_the_loop_works_for_requests_and_batches() -> None:
    """Stacking and splitting as measured, the rest by the constants."""
    costs = MeasuredCosts(measured({1: [1.0], 3: [1.0]}, stack=0.5, split=0.25))

    assert costs.take(10) == pytest.approx(10 * TAKE_SECONDS)
    assert costs.stack(2) == pytest.approx(BATCH_SECONDS + 0.5)
    assert costs.hand_over() == HAND_OVER_SECONDS
    assert costs.answer(2, 3) == pytest.approx(2 * ANSWER_SECONDS + 0.25)
