"""The simulation of one replica through any model and any arrivals, and what `auto` makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.lingers import Conduct, simulate
from tests.fakes import MODEL
from worker.core.batching.batcher import BatchPolicy
from worker.core.batching.linger import SimulatedLanes
from worker.core.records import BatchKind


@dataclass(frozen=True)
class Costs:
    """Seconds. `luck` makes an inference up to `swing` times as long."""

    fixed: float
    per_row: float
    swing: float
    per_request: float

    def take(self, requests: int) -> float:
        return self.per_request * requests

    def stack(self, rows: int) -> float:
        return self.per_request

    def run(self, rows: int, luck: float) -> float:
        return (self.fixed + self.per_row * rows) * (1 + self.swing * luck)

    def hand_over(self) -> float:
        return self.per_request

    def answer(self, requests: int, rows: int) -> float:
        return self.per_request * requests

    @property
    def least(self) -> float:
        """No request is answered sooner."""
        return 4 * self.per_request + self.fixed + self.per_row


COSTS = st.builds(
    Costs,
    fixed=st.sampled_from([0.0, 0.0002, 0.005, 0.05]),
    per_row=st.sampled_from([0.00001, 0.0005, 0.01]),
    swing=st.sampled_from([0.0, 0.3, 4.0]),
    per_request=st.sampled_from([0.0, 0.00001, 0.002]),
)


@given(
    gaps=st.lists(st.sampled_from([0.0, 0.0001, 0.003, 0.05, 2.0]), min_size=1, max_size=60),
    rows=st.integers(1, 9),
    request_rows=st.integers(1, 12),
    linger=st.sampled_from([0.0, 0.001, 0.02]),
    conduct=st.builds(Conduct, inflight_batches=st.integers(1, 3), chunk=st.sampled_from([1, 3, 256])),
    costs=COSTS,
)
def test_no_request_is_lost_and_none_is_answered_before_its_time(
    gaps: list[float], rows: int, request_rows: int, linger: float, conduct: Conduct, costs: Costs
) -> None:
    """Every row runs exactly once, in batches within the limit, on a lane that runs one at a time."""
    arrivals = np.cumsum(gaps)

    found = simulate(
        arrivals, BatchPolicy(rows, 1000, linger), costs, request_rows=request_rows, row_bytes=8, conduct=conduct
    )

    assert len(found.latencies) == len(gaps)
    assert (found.latencies >= costs.least * (1 - 1e-9) - 1e-9).all()
    assert sum(found.batch_rows) == request_rows * len(gaps)
    assert max(found.batch_rows) <= rows
    assert found.busy <= found.seconds * (1 + 1e-9)


@given(
    gaps=st.lists(st.sampled_from([0.0, 0.0001, 0.003, 0.05, 2.0]), min_size=1, max_size=60),
    rows=st.integers(1, 9),
    request_rows=st.integers(1, 9),
    linger=st.sampled_from([0.0, 0.001, 0.02]),
    costs=COSTS,
)
def test_a_replay_of_what_came_finds_the_latencies_that_came_of_it(
    gaps: list[float], rows: int, request_rows: int, linger: float, costs: Costs
) -> None:
    """What `auto` knows of a wait that it does not try is what the batcher would do, but for the loop's own time."""
    arrivals, rows = np.cumsum(gaps), max(rows, request_rows)
    calm, kind = Costs(costs.fixed, costs.per_row, swing=0.0, per_request=0.0), BatchKind(MODEL, ())

    found = simulate(
        arrivals, BatchPolicy(rows, 1000, linger), calm, request_rows=request_rows, conduct=Conduct(1000, 1000)
    )
    replay = SimulatedLanes(linger, {kind: rows}, 1, lambda _kind, of: calm.run(of, 0.5))
    squares = replay.serve([(at, kind, request_rows) for at in arrivals.tolist()]).squares

    assert squares == pytest.approx(request_rows * float(np.sum(found.latencies**2)), rel=1e-6, abs=1e-12)
