"""How long a brief inference may take, by the speed of this machine's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate, chain

import pytest

from worker.inference.running.inline_limit import STEPS, TIMED, TIMES, inline_limit


def clock_of(timed: Iterable[float]) -> Callable[[], float]:
    """A clock by which one timing after the other takes so many seconds, with a second between them."""
    return accumulate(chain.from_iterable((1.0, seconds) for seconds in timed)).__next__


def test_a_slower_interpreter_makes_longer_inferences_brief() -> None:
    fast, slow = (inline_limit(clock_of([seconds] * TIMES)) for seconds in (20e-6, 60e-6))

    assert fast == pytest.approx(20e-6 * STEPS / TIMED)
    assert slow == pytest.approx(3 * fast)


def test_an_odd_timing_makes_no_difference() -> None:
    """The first one, whose code is not warm, or one beside which another process filled the caches."""
    assert inline_limit(clock_of([9e-3, *[20e-6] * (TIMES - 1)])) == pytest.approx(20e-6 * STEPS / TIMED)
