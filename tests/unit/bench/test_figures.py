"""The figures of `bench`; the measuring itself needs a broker."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.cases import deadlines
from bench.lingers import LOADS, MODELS, cell, most
from bench.pace import Timetable
from bench.turns import Figure, Turns, take_turns
from worker.tools.bench.figures import Heard, Now, Sent

PARTS = ("10%", "90%", "48 in 3 ms", "32, 3 ms later 32")  # `python -m bench.lingers` has all


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    """Who begins changes with the round."""
    order: list[str] = []

    def run(name: str) -> int:
        order.append(name)
        return len(order)

    found = take_turns(["a", "b"], 2, run, lambda _: None)

    assert order == ["a", "b", "b", "a", "a", "b"]
    assert found == {"a": [4, 5], "b": [3, 6]}


def test_a_ratio_is_the_median_of_ratios_within_a_round() -> None:
    """A contender that did not take part has none, and misses its bar."""
    turns = Turns(
        {"worker": [Figure(2.0, 1.0), Figure(9.0, 1.0), Figure(4.0, 1.0)], "loop": [Figure(1.0, 2.0)] * 3},
        {"peer": "not installed"},
    )

    assert turns.ratio("worker", "loop") == 4.0
    assert math.isnan(turns.ratio("worker", "peer"))
    loop, peer = turns.bars({"loop": 2.0, "peer": 1.0, "never asked for": 1.0})
    assert loop.is_kept
    assert not peer.is_kept
    assert turns.lines[-1][:2] == ["peer", "not installed"]


def test_a_timetable_sends_what_is_due() -> None:
    """Nothing before its instant, and all of what a late sender missed."""
    pace = Timetable(np.array([0.0, 0.1, 0.2, 5.0]))

    assert [pace.ready(Now(elapsed, sent, 0)) for elapsed, sent in ((0.0, 0), (0.25, 1), (1.0, 3))] == [1, 2, 0]
    assert pace.until_next(Now(1.0, 3, 0)) == 4.0
    assert pace.is_over(Now(9.0, 4, 0))


def test_only_results_in_time_are_goodput() -> None:
    """A refusal is none, a result after the deadline is none, and the first seconds do not count."""
    dues = np.arange(101) / 10  # ten a second
    codes = ["" if number % 2 else deadlines.EXCEEDED for number in range(101)]
    waited = np.where(np.arange(101) % 4 == 1, 0.3, 0.6)
    heard = Heard(np.arange(101), dues + waited, codes=codes)

    found = deadlines.served(dues, Sent(0.0, dues), heard, rows_run=51)

    assert found.results == pytest.approx(5.0, rel=0.05)
    assert found.in_time == pytest.approx(2.5, rel=0.1)
    assert found.wasted == 1


@pytest.mark.parametrize("load", PARTS)
@pytest.mark.parametrize("model", MODELS)
def test_auto_is_no_worse_than_the_best_fixed_linger(model: str, load: str) -> None:
    """Within 5 %, by p99 and requests a second, with a model that gains all by batches and one that gains nothing."""
    costs = MODELS[model]

    found = cell(costs, LOADS[load], most(costs), 4000, seeds=(1,))

    assert found.p99_share <= 1.05
    assert found.rate_share >= 0.95
