"""The learned linger: its simulation agrees with the real batcher, and its waits compare well with fixed ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.lingers import LOADS, MODELS, Conduct, cell, most, simulate
from tests.chunks import MODEL
from worker.core.batching.batcher import BatchPolicy
from worker.core.batching.linger import SimulatedLanes
from worker.core.records import BatchKind

PARTS = ("10%", "90%", "48 in 3 ms", "32, 3 ms later 32")  # of the loads; `python -m bench.lingers` has all


@dataclass(frozen=True)
class Costs:
    """Costs of inferences alone, in seconds; the loop itself takes no time."""

    fixed: float
    per_row: float

    def take(self, requests: int) -> float:
        return 0.0

    def stack(self, rows: int) -> float:
        return 0.0

    def run(self, rows: int, luck: float = 0.5) -> float:
        return self.fixed + self.per_row * rows

    def hand_over(self) -> float:
        return 0.0

    def answer(self, requests: int, rows: int) -> float:
        return 0.0


@given(
    gaps=st.lists(st.sampled_from([0.0, 0.0001, 0.003, 0.05, 2.0]), min_size=1, max_size=60),
    rows=st.integers(1, 9),
    request_rows=st.integers(1, 9),
    linger=st.sampled_from([0.0, 0.001, 0.02]),
    costs=st.builds(
        Costs, st.sampled_from([0.0, 0.0002, 0.005, 0.05]), per_row=st.sampled_from([0.00001, 0.0005, 0.01])
    ),
)
def test_a_wait_costs_in_the_simulation_what_it_would_cost(
    gaps: list[float], rows: int, request_rows: int, linger: float, costs: Costs
) -> None:
    """The learned linger knows the effect of a linger that is not in force."""
    arrivals, rows, kind = np.cumsum(gaps), max(rows, request_rows), BatchKind(MODEL, ())

    found = simulate(
        arrivals, BatchPolicy(rows, 1000, linger), costs, request_rows=request_rows, conduct=Conduct(1000, 1000)
    )
    lanes = SimulatedLanes(linger, {kind: rows}, 1, lambda _kind, of: costs.run(of))
    squares = lanes.serve([(at, kind, request_rows) for at in arrivals.tolist()]).squares

    assert sum(found.batch_rows) == request_rows * len(gaps)
    assert squares == pytest.approx(request_rows * float(np.sum(found.latencies**2)), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("load", PARTS)
@pytest.mark.parametrize("model", MODELS)
def test_auto_is_no_worse_than_the_best_fixed_linger(model: str, load: str) -> None:
    """It is within 5 % by p99 and requests a second, for a model that gains all by batches and one that does not."""
    costs = MODELS[model]

    found = cell(costs, LOADS[load], most(costs), 4000, seeds=(1,))

    assert found.p99_share <= 1.05
    assert found.rate_share >= 0.95
