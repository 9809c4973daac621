"""One replica in virtual time: what waits for what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.bench.simulation import Conduct, Simulated, simulate
from tests.unit.tools.profile.builders import steady
from worker.core.batching.batcher import BatchPolicy
from worker.tools.profile.engine.advice import HEAD_ROOM
from worker.tools.profile.engine.costs import MeasuredCosts
from worker.tools.profile.engine.forecast import Forecaster, poisson


@dataclass
class Costs:
    """Seconds: `fixed` and `per_row` of an inference, the rest of the loop."""

    fixed: float = 10.0
    per_row: float = 0.0
    taking: float = 0.0
    stacking: float = 0.0
    answering: float = 0.0
    handing_over: float = 0.0

    def take(self, requests: int) -> float:
        return self.taking * requests

    def stack(self, rows: int) -> float:
        return self.stacking

    def run(self, rows: int, luck: float) -> float:
        return self.fixed + self.per_row * rows

    def hand_over(self) -> float:
        return self.handing_over

    def answer(self, requests: int, rows: int) -> float:
        return self.answering * requests


def served(
    arrivals: list[float], costs: Costs, *, rows: int = 4, linger: float = 0.0, request_rows: int = 1
) -> Simulated:
    policy = BatchPolicy(rows, 1_000_000, linger)
    return simulate(np.array(arrivals), policy, costs, request_rows=request_rows)


def test_a_request_alone_waits_for_its_own_inference_only() -> None:
    """Without linger nothing is waited for."""
    found = served([5.0], Costs(taking=1, stacking=2, answering=3))

    assert found.latencies.tolist() == [1 + 2 + 10 + 3]


def test_a_linger_is_waited_for_by_an_idle_lane() -> None:
    """The first request waits for it, and who comes meanwhile shares its inference."""
    found = served([0.0, 3.0], Costs(), linger=5.0)

    assert found.latencies.tolist() == [15.0, 12.0]
    assert found.batch_rows == [2]


def test_a_full_batch_waits_for_no_linger() -> None:
    """It goes with its last row."""
    found = served([0.0, 1.0], Costs(), rows=2, linger=500.0)

    assert found.latencies.tolist() == [11.0, 10.0]


def test_what_comes_while_the_lane_runs_shares_the_next_inference() -> None:
    """Due is not closed: batches grow by themselves under load."""
    found = served([0.0, 1.0, 2.0, 9.0], Costs(), rows=4)

    assert found.batch_rows == [1, 3]
    assert found.latencies.tolist() == [10.0, 19.0, 18.0, 11.0]


def test_a_full_batch_is_stacked_ahead_of_a_busy_lane() -> None:
    """The lane goes from one to the next without the loop, which stacks the third before it answers the first."""
    found = served([0.0, 1.0, 2.0], Costs(stacking=1), rows=1)

    assert found.latencies.tolist() == [12.0, 20.0, 29.0]
    assert found.lane_busy == pytest.approx(30 / 31)


def test_with_one_batch_in_flight_the_lane_waits_for_the_loop() -> None:
    """`MAX_INFLIGHT_BATCHES=1` stacks nothing ahead."""
    arrivals = np.zeros(2)

    found = simulate(arrivals, BatchPolicy(1, 1000, 0.0), Costs(stacking=1), conduct=Conduct(inflight_batches=1))

    assert found.latencies.tolist() == [12.0, 22.0]


def test_a_lane_loses_time_between_two_inferences() -> None:
    """It is not busy then, and nothing else can use it."""
    found = served([0.0, 0.0], Costs(handing_over=1.0), rows=1)

    assert found.latencies.tolist() == [11.0, 22.0]
    assert found.busy == 20.0


def test_a_slow_loop_is_the_bottleneck() -> None:
    """An inference that costs nothing does not make the worker infinitely fast."""
    found = served([0.0] * 100, Costs(fixed=0.0, taking=1.0, answering=1.0), rows=10)

    assert found.seconds == pytest.approx(200.0)


def test_a_batch_closes_by_bytes_too() -> None:
    """The policy is the worker's own."""
    found = simulate(np.zeros(4), BatchPolicy(100, 20, 0.0), Costs(), row_bytes=10)

    assert found.batch_rows == [2, 2]


def test_a_request_larger_than_a_batch_is_answered_with_its_last_piece() -> None:
    """It is cut, runs in several batches, and is answered as one."""
    found = served([0.0], Costs(), rows=4, request_rows=10)

    assert found.batch_rows == [4, 4, 2]
    assert found.latencies.tolist() == [30.0]


def test_no_more_is_taken_than_the_lane_has_ahead_of_it() -> None:
    """What waits then waits in Kafka: the last of a backlog is taken when there is room for it."""
    costs = Costs(taking=1.0)
    found = simulate(np.zeros(6), BatchPolicy(1, 1000, 0.0), costs, conduct=Conduct(chunk=1))

    assert found.latencies.max() == pytest.approx(61.0)  # six inferences, and only the first request's taking unseen


def test_poisson_arrivals_come_at_their_rate() -> None:
    """The same seed makes the same pattern, at any rate."""
    slow, fast = poisson(100.0, 20_000, 3), poisson(1000.0, 20_000, 3)

    assert slow[-1] == pytest.approx(200.0, rel=0.03)
    assert np.allclose(slow, fast * 10)
    assert np.std(np.diff(slow)) == pytest.approx(0.01, rel=0.05)


def test_latencies_are_told_by_percentile() -> None:
    """So many percent are at most that: a value that was simulated, none between two."""
    found = Simulated(np.arange(1.0, 101.0), [1], 1.0, 2.0)

    assert (found.latency(50), found.latency(99), found.latency(100)) == (51.0, 100.0, 100.0)


SLOW = [(0.005, 0.0001), (0.0, 0.001)]  # the lane is the limit; else the loop is
QUICK = [(0.0001, 0.00001), (0.00002, 0.0000001)]
SIZES = (1, 8, 32)
LOADS = (0.05, 0.3, 1 - HEAD_ROOM)
ANY_BYTES = 1 << 62


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize(
    ("model", "most_p99", "most_ceiling"),
    [*((model, 1.02, 1.01) for model in SLOW), *((model, 1.4, 1.35) for model in QUICK)],
)
def test_the_forecast_of_profile_is_near_the_workers_own_batcher(
    model: tuple[float, float], rows: int, most_p99: float, most_ceiling: float
) -> None:
    """At whatever load leaves head room. Where the loop is the limit it is a little too careful, and says too much of
    a backlog, which head room covers."""
    costs = MeasuredCosts(steady(SIZES, fixed=model[0], per_row=model[1]))
    forecasts = Forecaster(costs, 0.0, requests=3000)
    ceiling = forecasts.ceiling(rows)

    for load in LOADS:
        arrivals = poisson(load * ceiling, 3000, 0)
        found = simulate(arrivals, BatchPolicy(rows, ANY_BYTES, 0.0), costs, conduct=Conduct(2, max(32, rows)))
        assert 0.94 <= forecasts(rows, load * ceiling).p99 / found.latency(99) <= most_p99
    backlog = simulate(np.zeros(3000), BatchPolicy(rows, ANY_BYTES, 0.0), costs)
    assert 0.99 <= ceiling * backlog.seconds / 3000 <= most_ceiling


@pytest.mark.parametrize("rows", [8, 32])
@pytest.mark.parametrize(("fixed", "per_row"), [*SLOW, *QUICK])
def test_no_fixed_linger_is_worth_its_wait_under_steady_load(fixed: float, per_row: float, rows: int) -> None:
    """Batches fill while the lane is busy: at whatever load leaves head room."""
    costs = MeasuredCosts(steady(SIZES, fixed=fixed, per_row=per_row))
    ceiling = Forecaster(costs, 0.0, requests=3000).ceiling(rows)

    for load in LOADS:
        arrivals = poisson(load * ceiling, 3000, 0)
        without, *with_linger = (
            simulate(arrivals, BatchPolicy(rows, ANY_BYTES, linger), costs, conduct=Conduct(2, 32)).latency(99)
            for linger in (0.0, 0.0005, 0.002, 0.01)
        )
        assert np.min(with_linger) > 0.94 * without
