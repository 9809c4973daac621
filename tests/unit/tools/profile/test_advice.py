"""What to set, for models whose costs are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.unit.tools.profile.builders import steady
from worker.core.failures import BadConfiguration
from worker.tools.profile.engine.advice import FILL, HEAD_ROOM, Advice, Need, advise
from worker.tools.profile.engine.costs import MeasuredCosts
from worker.tools.profile.engine.forecast import Forecast, Forecaster

SIZES = (1, 2, 4, 8, 16, 32)
TRANSPORT = 0.005


def forecaster(
    *, fixed: float, per_row: float = 0.0, sizes: Sequence[int] = SIZES, request_rows: int = 1
) -> Forecaster:
    """One inference takes `fixed` seconds and `per_row` more for each row."""
    costs = MeasuredCosts(steady(sizes, fixed=fixed, per_row=per_row))
    return Forecaster(costs, TRANSPORT, request_rows=request_rows, requests=1000)


def advised(rate: float, budget: float, *, fixed: float = 0.01, per_row: float = 0.0001) -> Advice:
    return advise(Need(rate, budget), SIZES, forecaster(fixed=fixed, per_row=per_row))


class Told:
    """Forecasts that are made up: the most of each size, and a p99 at each load."""

    def __init__(self, ceilings: Mapping[int, float], p99: Callable[[int, float], float]) -> None:
        self._ceilings = ceilings
        self._p99 = p99
        self._asked = 0

    def __call__(self, max_rows: int, rate: float) -> Forecast:
        self._asked += 1
        assert self._asked < 1000, "it goes on and on"
        p99 = self._p99(max_rows, rate)
        return Forecast(max_rows, rate, p99 / 2, p99, 1.0, 0.1)

    def ceiling(self, max_rows: int) -> float:
        return self._ceilings[max_rows]


def test_one_session_that_serves_the_rate_needs_no_batches() -> None:
    """Ten requests a second at 10 ms each: one at a time, one replica."""
    found = advised(10, 0.1)

    assert not found.is_batching
    assert found.replicas == 1
    assert found.forecast.max_rows == 1
    assert found.load == pytest.approx(0.1, abs=0.01)


def test_a_rate_beyond_one_session_is_served_by_batches_on_one_replica() -> None:
    """At 300 a second one by one takes five replicas; the smallest batch that takes 600 is advised."""
    found = advised(300, 0.1)

    assert found.is_batching
    assert found.replicas == 1
    assert found.forecast.max_rows == 16
    assert found.alone.replicas(300) == 5
    assert found.forecast.p99 <= 0.1 * FILL


def test_where_no_batch_has_room_for_twice_the_rate_the_best_is_advised() -> None:
    """What there is to spare is worth having."""
    found = advised(1500, 0.2)

    assert found.replicas == 1
    assert found.forecast.max_rows == 32
    assert max(capacity.within for capacity in found.capacities) < 2 * 1500


def test_batches_that_gain_nothing_are_not_advised() -> None:
    """Where each row costs as much as the first, replicas are all that helps."""
    found = advised(200, 0.2, fixed=0.0, per_row=0.01)

    assert not found.is_batching
    assert found.replicas == 3


def test_a_replica_keeps_head_room() -> None:
    """However generous the budget: a backlog must be caught up with."""
    found = advised(2000, 60.0)

    assert found.load <= 1 - HEAD_ROOM + 1e-9


def test_a_budget_that_costs_replicas_says_what_a_larger_one_saves() -> None:
    """Few of them meet a tight budget only at little load."""
    found = advised(1500, 0.0285)

    assert found.roomier is not None
    replicas, budget = found.roomier
    assert replicas < found.replicas
    assert advised(1500, budget * 1.001).replicas == replicas


def test_a_generous_budget_has_nothing_to_gain_from_a_larger_one() -> None:
    """Then only head room counts."""
    assert advised(1500, 5.0).roomier is None


def test_a_budget_below_the_least_is_refused_with_the_least() -> None:
    """Kafka and one inference alone take longer; and the least that is named is accepted."""
    with pytest.raises(BadConfiguration) as refusal:
        advised(100, 0.012)

    told = str(refusal.value)
    assert told.startswith("--latency-budget-ms 12 cannot be met: the least is ")
    least = float(told.removeprefix("--latency-budget-ms 12 cannot be met: the least is ").partition(" ms. ")[0])
    assert 0.015 / FILL <= least / 1000 <= 0.025 / FILL  # of a hundred requests one waits for another
    assert advised(100, least / 1000).forecast.p99 <= least / 1000


def test_requests_of_many_rows_are_counted_as_requests() -> None:
    """A batch of 32 rows is four requests of eight."""
    forecasts = forecaster(fixed=0.01, sizes=(8, 16, 32), request_rows=8)

    found = advise(Need(100, 0.1), (8, 16, 32), forecasts)

    assert found.alone.max_rows == 8
    assert found.alone.ceiling == pytest.approx(100, rel=0.05)
    assert found.forecast.max_rows == 32


def test_a_row_that_takes_longest_alone_is_what_a_budget_is_held_against() -> None:
    """At little load it will be alone, and no number of replicas helps: the budget is refused, not looked for."""
    forecasts = Told({1: 5.0, 64: 1000.0}, lambda _, rate: 0.2 if rate < 6 else 0.05)

    with pytest.raises(BadConfiguration, match="cannot be met: the least is 222"):
        advise(Need(1, 0.15), (1, 64), forecasts)


def test_a_size_that_misses_the_budget_at_the_rate_asked_for_is_told_to_take_less() -> None:
    """A simulation at another rate throws other dice: what stands in the table leads to what is advised."""
    forecasts = Told({1: 1000.0, 64: 20_000.0}, lambda _, rate: 0.06 if 400 < rate < 3000 else 0.04)

    found = advise(Need(2000, 0.05), (1, 64), forecasts)

    assert found.replicas > 1
    assert found.forecast.p99 <= 0.05
    assert min(n for c in found.capacities if (n := c.replicas(2000)) is not None) == found.replicas
    assert found.roomier is None  # not a budget that is smaller than the one that was asked about
