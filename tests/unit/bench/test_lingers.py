"""The learned linger beside fixed ones, in the simulation of `bench.lingers`."""

from __future__ import annotations

import pytest

from bench.lingers import LOADS, MODELS, cell, most

PARTS = ("10%", "90%", "48 in 3 ms", "32, 3 ms later 32")  # `python -m bench.lingers` has all


@pytest.mark.parametrize("load", PARTS)
@pytest.mark.parametrize("model", MODELS)
def test_auto_is_no_worse_than_the_best_fixed_linger(model: str, load: str) -> None:
    """Within 5 %, by p99 and requests a second, with a model that gains all by batches and one that gains nothing."""
    costs = MODELS[model]

    found = cell(costs, LOADS[load], most(costs), 4000, seeds=(1,))

    assert found.p99_share <= 1.05
    assert found.rate_share >= 0.95
