"""`auto` beside fixed lingers, under a part of the loads of `tests.bench.lingers`, which measures all of them."""

from __future__ import annotations

import pytest

from tests.bench.lingers import FIXED, LOADS, SYNTHETIC, cell, most

REQUESTS = 4000
PARTS = ("1%", "10%", "50%", "90%", "32 at once", "32 in 1 ms", "48 in 3 ms", "32, 3 ms later 32")


@pytest.mark.parametrize("load", PARTS)
@pytest.mark.parametrize("model", SYNTHETIC)
def test_auto_is_no_worse_than_the_best_fixed_linger(model: str, load: str) -> None:
    """Within 5 %, by p99 and requests a second, with a model that gains all by batches and one that gains nothing."""
    _, costs = SYNTHETIC[model]

    found = cell(costs, LOADS[load], most(costs), REQUESTS, seeds=(1,))

    assert found.p99_share <= 1.05
    assert found.rate_share >= 0.95


def test_no_fixed_linger_is_as_good_everywhere() -> None:
    """Each of them costs a third more than `auto` somewhere: otherwise it would be the default."""
    worst = dict.fromkeys(FIXED, 0.0)
    for model, load in (("flat", "32 in 1 ms"), ("linear", "10%")):
        _, costs = SYNTHETIC[model]
        found = cell(costs, LOADS[load], most(costs), REQUESTS, seeds=(1,))
        for ms, figures in found.fixed.items():
            worst[ms] = max(worst[ms], figures.p99 / found.auto.p99)

    assert min(worst.values()) > 4 / 3
