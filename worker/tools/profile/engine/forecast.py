"""What one replica would do at a batch size and a rate: its lane in virtual time, at the costs that were measured.

    arrivals ──▶ all that came while the lane ran, up to a full batch ──▶ one inference ──▶ latencies

That is what a worker does under load, and what `LINGER_MS=auto`, the default, is never much worse than. Requests arrive
at random (Poisson), as those of many independent publishers do. The loop works beside the lane; the slower of the two
sets the pace. Latency is from the request's record to the answer's: what is simulated, and what Kafka takes besides.

`tests/unit/bench/test_simulation.py` holds it against a simulation of the worker's own batcher.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.tools.profile.engine.costs import Costs

Floats = NDArray[np.float64]

# Requests of one simulation: a hundred of them beyond the p99. At 70 % load another seed moves it by 0.4 to 8 % (one
# standard deviation; most where one request at a time is served; measured 2026).
REQUESTS = 10_000


class Forecast(NamedTuple):
    """One replica with batches of `max_rows` at most, at `rate` requests a second.

    Latencies in seconds. Both hold the p99 of what Kafka takes: the p50 is rather less. `lane_busy`: a share of the
    time.
    """

    max_rows: int
    rate: float
    p50: float
    p99: float
    mean_rows: float
    lane_busy: float


@dataclass(frozen=True, slots=True)
class Forecaster:
    """Asks the simulation. `transport`: seconds that Kafka takes, p99."""

    costs: Costs
    transport: float
    request_rows: int = 1
    requests: int = REQUESTS

    def __call__(self, max_rows: int, rate: float) -> Forecast:
        arrivals = poisson(rate, self.requests, seed=0)
        served = self._serve(max_rows, arrivals)
        p50, p99 = self.transport + np.percentile(served.answered - arrivals, (50, 99), method="higher")
        mean_rows = self.requests * self.request_rows / served.batches
        return Forecast(max_rows, rate, float(p50), float(p99), mean_rows, served.busy / served.seconds(arrivals))

    def ceiling(self, max_rows: int) -> float:
        arrivals = np.zeros(self.requests)
        return self.requests / self._serve(max_rows, arrivals).seconds(arrivals)

    def _serve(self, max_rows: int, arrivals: Floats) -> _Served:
        """The same arrivals give the same figures."""
        luck = np.random.default_rng(0).random(len(arrivals)).tolist()
        waiting, most, costs = arrivals.tolist(), max(1, max_rows // self.request_rows), self.costs
        answered = np.empty(len(arrivals))
        first = batches = 0
        free = busy = 0.0
        while first < len(waiting):
            begins = max(free, waiting[first])
            last = min(bisect_right(waiting, begins), first + most)
            requests, rows = last - first, (last - first) * self.request_rows
            stacks, answers = costs.take(requests) + costs.stack(rows), costs.answer(requests, rows)
            runs = costs.run(rows, luck[batches])
            lane = costs.hand_over() + runs
            # A full batch is stacked while the one before it runs.
            free = begins + max(lane if requests == most else stacks + lane, stacks + answers)
            answered[first:last] = max(free, begins + stacks + lane) + answers
            busy += runs
            first, batches = last, batches + 1
        return _Served(answered, batches, busy)


class _Served(NamedTuple):
    """When each request has its answer; how many batches it took, and how many seconds of the lane."""

    answered: Floats
    batches: int
    busy: float

    def seconds(self, arrivals: Floats) -> float:
        """From the first arrival to the last answer."""
        return float(self.answered.max() - arrivals[0])


def poisson(rate: float, requests: int, seed: int) -> Floats:
    """When so many requests arrive that know nothing of each other, `rate` a second. Ascending seconds, float64.

    The same seed gives the same pattern at every rate, only faster: what is compared differs in nothing else.
    """
    return np.cumsum(np.random.default_rng(seed).exponential(1.0, requests)) / rate
