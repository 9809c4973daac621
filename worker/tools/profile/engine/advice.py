"""Which batch size to set for a rate and a latency budget, and how many replicas it takes.

What one replica takes within the budget is found for each batch size, whatever rate is asked for; so more requests
never need fewer replicas. Where one request at a time needs the fewest, it is advised. Otherwise the smallest size that
does, and has room for twice the rate: a batch is never larger than the load makes it, so a larger limit costs nothing
until it is needed, and one with nothing to spare makes a queue of the first burst or slow minute (the digits at 4,000 a
second on two busy cores: a p50 of 879 ms with 4 rows, of 11 ms with 32; measured 2026).

How long requests wait for company is not advised: `LINGER_MS=auto`, the default, learns that from the requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple, Protocol

from worker.core.failures import BadConfiguration
from worker.tools.profile.engine.forecast import Forecast

# Of what a replica could do at most this stays free, for bursts and to catch up: a backlog of one minute is gone after
# 2.3 minutes at 70 % load, after 9 at 90 %.
HEAD_ROOM = 0.3
# Of the budget so much may be filled in the simulation; the rest is for what it does not know.
FILL = 0.9
# The limit of a batch has room for so many times the rate, if any has.
SPARE = 2.0
# A load, as a share of the most at the slowest size, at which requests hardly meet others: what latency is at least. Of
# each size's own most it would be a load at which requests still meet, where one row alone takes longer than several.
QUIET = 0.01
# Halvings between two loads: to a hundredth of the most.
STEPS = 6


class Forecasts(Protocol):
    """A `Forecaster`."""

    def __call__(self, max_rows: int, rate: float) -> Forecast: ...

    def ceiling(self, max_rows: int) -> float:
        """The most requests a second that one replica can do."""
        ...


class Need(NamedTuple):
    """Requests a second over all replicas, and the p99 from request to answer that is wanted, seconds."""

    rate: float
    budget: float


class Capacity(NamedTuple):
    """What one replica takes at a batch size, in requests a second.

    `ceiling`: at most. `within`: with head room and within the budget; 0: never. `quiet` and `full` say how it does
    with next to no load, and with as much as head room allows.
    """

    max_rows: int
    ceiling: float
    within: float
    quiet: Forecast
    full: Forecast

    def replicas(self, rate: float) -> int | None:
        """How many this rate takes; None: no number is enough."""
        return _replicas(rate, self.within) if self.within else None


class Advice(NamedTuple):
    """What to set, and the numbers behind it. `capacities` ascend by batch size; the first is one request a time."""

    need: Need
    replicas: int
    forecast: Forecast
    load: float  # of each replica, as a share of its ceiling
    capacities: Sequence[Capacity]

    @property
    def is_batching(self) -> bool:
        return self.forecast.max_rows > self.alone.max_rows

    @property
    def alone(self) -> Capacity:
        return self.capacities[0]

    @property
    def roomier(self) -> tuple[int, float] | None:
        """How few replicas a larger budget would take, and the least one in seconds; None when this one costs none."""
        fewest = min(self.capacities, key=lambda c: (_replicas(self.need.rate, c.full.rate), c.full.p99))
        replicas = _replicas(self.need.rate, fewest.full.rate)
        budget = ceil(fewest.full.p99 / FILL * 1000) / 1000  # it is shown rounded, and must do then
        return (replicas, budget) if replicas < self.replicas and budget > self.need.budget else None


def advise(need: Need, sizes: Sequence[int], forecasts: Forecasts) -> Advice:
    """Of these ascending batch sizes. Raises `BadConfiguration` when the budget is too tight for any."""
    limit = FILL * need.budget
    ceilings = [forecasts.ceiling(size) for size in sizes]
    quiet = QUIET * min(ceilings)
    capacities = [_capacity(*size, quiet, limit, forecasts) for size in zip(sizes, ceilings, strict=True)]
    if not any(capacity.within for capacity in capacities):
        raise BadConfiguration(_too_tight(need, capacities))
    replicas, capacity, forecast = _choose(need, limit, capacities, forecasts)
    return Advice(need, replicas, forecast, forecast.rate / capacity.ceiling, capacities)


def _choose(
    need: Need, limit: float, capacities: list[Capacity], forecasts: Forecasts
) -> tuple[int, Capacity, Forecast]:
    """Nearly always the first that is preferred.

    At the rate asked for batches fall differently, and the budget may be missed. Then that size takes less than it
    seemed, which is corrected in `capacities`, so that what is said of it agrees with what is advised.
    """
    while True:
        replicas, at = _preferred(need, capacities)
        capacity = capacities[at]
        forecast = forecasts(capacity.max_rows, need.rate / replicas)
        if forecast.p99 <= need.budget or forecast.rate <= capacity.quiet.rate:
            return replicas, capacity, forecast
        within = _most(capacity.max_rows, capacity.quiet.rate, forecast.rate, limit, forecasts)
        capacities[at] = capacity._replace(within=within)


def _preferred(need: Need, capacities: Sequence[Capacity]) -> tuple[int, int]:
    """Few replicas before many, and then as the module's first words have it; and the place of the capacity."""
    needed = {at: n for at, c in enumerate(capacities) if (n := c.replicas(need.rate)) is not None}
    fewest = min(needed.values())
    fitting = [at for at, replicas in needed.items() if replicas == fewest]
    roomy = [at for at in fitting if at == 0 or capacities[at].within >= SPARE * need.rate / fewest]
    return fewest, roomy[0] if roomy else max(fitting, key=lambda at: capacities[at].within)


def _capacity(max_rows: int, ceiling: float, quiet_rate: float, limit: float, forecasts: Forecasts) -> Capacity:
    quiet = forecasts(max_rows, quiet_rate)
    full = forecasts(max_rows, (1 - HEAD_ROOM) * ceiling)
    within = 0.0
    if quiet.p99 <= limit:
        within = full.rate if full.p99 <= limit else _most(max_rows, quiet.rate, full.rate, limit, forecasts)
    return Capacity(max_rows, ceiling, within, quiet, full)


def _most(max_rows: int, enough: float, much: float, limit: float, forecasts: Forecasts) -> float:
    """The highest rate that keeps within the limit, between one that does and one that does not."""
    for _ in range(STEPS):
        middle = (enough + much) / 2
        if forecasts(max_rows, middle).p99 <= limit:
            enough = middle
        else:
            much = middle
    return enough


def _replicas(rate: float, capacity: float) -> int:
    return max(1, ceil(rate / capacity * (1 - 1e-9)))  # what rounding adds to an even share needs no replica


def _too_tight(need: Need, capacities: Sequence[Capacity]) -> str:
    p99 = min(capacity.quiet.p99 for capacity in capacities)
    least = ceil(p99 / FILL * 10_000) / 10
    return (
        f"--latency-budget-ms {need.budget * 1000:g} cannot be met: the least is {least:g} ms. With next to no load "
        f"the p99 from request to answer is {p99 * 1000:.1f} ms already, and a tenth of the budget stays free for what "
        "a simulation does not know"
    )
