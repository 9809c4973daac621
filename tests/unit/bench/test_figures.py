"""The figures of `bench`; the measuring itself needs a broker."""

from __future__ import annotations

import numpy as np
import pytest

from bench.cases import deadlines
from bench.lingers import LOADS, MODELS, cell, most
from bench.turns import take_turns
from worker.tools.bench.figures import Heard, Sent

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
