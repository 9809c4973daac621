"""Computes how many requests a second one replica answers with each batch size, what limits it, and what to set.

The lane runs the model while the loop decodes, stacks, splits and encodes; the slower of the two sets the pace:

    a request's seconds = max( (inference + hand-over) / requests of a batch,
                               decode + encode + Kafka's client + (batch's own work) / requests of a batch )

Batches fill by themselves while the lane is busy, so under load they have the size that is set. A request then waits
for the running inference, counted as a median one, and for its own, counted as a slow one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Literal, NamedTuple

from worker.core.failures import BadConfiguration
from worker.tools.profile.sweep import RequestCost, Size

# The loop's CPU seconds for a request in addition to decoding and encoding (ledger, Kafka's client), and for a batch in
# addition to stacking and splitting. The third is lost by a lane between two inferences: it wakes up, and takes the
# interpreter from a busy loop (measured on whole workers, 2026).
OTHER_SECONDS, BATCH_SECONDS, HAND_OVER_SECONDS = 6e-6, 40e-6, 100e-6
# Seconds that Kafka takes for a request and its answer together: the p99 at a moderate load.
TRANSPORT_SECONDS = 0.008
# The share of the best rate that is enough. Two sweeps differ by a few percent, so with 0.98 each would advise anew.
ENOUGH = 0.9
# The share of a replica's maximum that stays free for bursts and for catching up: a backlog of one minute is gone after
# 2.3 minutes at 70 % load, after 9 at 90 %.
HEAD_ROOM = 0.3


class Capacity(NamedTuple):
    """One replica with batches of `rows`: a lane's and the loop's seconds for one request, and a bound of latencies."""

    rows: int
    model: float
    loop: float
    latency: float

    @property
    def per_s(self) -> float:
        """Requests a second, at most."""
        return 1 / max(self.model, self.loop)


class Advice(NamedTuple):
    """The advice. `capacities` ascend. `replicas` is None without a rate, `linger_budget` None without a budget."""

    chosen: Capacity
    capacities: Sequence[Capacity]
    cost: RequestCost
    limit: Literal["model", "encoding", "loop"]
    replicas: int | None
    linger_budget: float | None

    @property
    def is_batching(self) -> bool:
        return self.chosen.rows > self.capacities[0].rows

    @property
    def settings(self) -> Mapping[str, float]:
        """The variables to set."""
        budget = {} if self.linger_budget is None else {"LATENCY_BUDGET_MS": int(self.linger_budget * 1e6) / 1000}
        return {
            f"WORKER_BATCHING__{name}": value for name, value in {"MAX_BATCH_SIZE": self.chosen.rows, **budget}.items()
        }


def advise(
    sizes: Sequence[Size], cost: RequestCost, request_rows: int, rate: float | None, budget: float | None
) -> Advice:
    """Chooses the smallest size that reaches nine tenths of the best rate within the budget; times in seconds.

    Raises `BadConfiguration` if the budget is too tight for every size.
    """
    capacities = [_capacity(size, cost, request_rows) for size in sizes]
    fitting = [capacity for capacity in capacities if budget is None or capacity.latency <= budget]
    if not fitting:
        assert budget is not None
        least = min(capacity.latency for capacity in capacities)
        raise BadConfiguration(
            f"--latency-budget-ms {budget * 1000:g} cannot be met: the least is {ceil(least * 1e4) / 10:g} ms, for the "
            "inference that runs when a request comes, its own, and Kafka"
        )
    best = max(capacity.per_s for capacity in fitting)
    chosen = next(capacity for capacity in fitting if capacity.per_s >= ENOUGH * best)
    limit: Literal["model", "encoding", "loop"] = "model"
    if chosen.loop > chosen.model:
        limit = "encoding" if 2 * (cost.decode + cost.encode) > chosen.loop else "loop"
    replicas = None if rate is None else max(1, ceil(rate / ((1 - HEAD_ROOM) * chosen.per_s)))
    return Advice(chosen, capacities, cost, limit, replicas, None if budget is None else budget - TRANSPORT_SECONDS)


def _capacity(size: Size, cost: RequestCost, request_rows: int) -> Capacity:
    requests = size.rows / request_rows
    model = (size.p50 + HAND_OVER_SECONDS) / requests
    loop = OTHER_SECONDS + cost.decode + cost.encode + (BATCH_SECONDS + size.stack + size.split) / requests
    latency = TRANSPORT_SECONDS + size.p50 + size.p99 + 2 * HAND_OVER_SECONDS + requests * loop
    return Capacity(size.rows, model, loop, latency)
