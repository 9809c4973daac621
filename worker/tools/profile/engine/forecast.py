"""What one replica would do with some settings at some rate: the simulation, asked in the units of an operator.

Latency is from the request's record to the answer's: what is simulated, and what Kafka takes besides. Requests arrive
at random (Poisson), as those of many independent publishers do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from worker.core.batching.batcher import BatchPolicy
from worker.tools.profile.engine.simulation import Conduct, Costs, Simulated, poisson, simulate

# Requests of one simulation: a hundred of them beyond the p99. At 70 % load another seed moves it by 0.4 to 8 % (one
# standard deviation; most where one request at a time is served).
REQUESTS = 10_000


class Batching(NamedTuple):
    """`MAX_BATCH_SIZE`, and `LINGER_MS` in seconds."""

    max_rows: int
    linger: float


class Forecast(NamedTuple):
    """One replica at `rate` requests a second. Latencies in seconds, `lane_busy` as a share of the time.

    Both latencies hold the p99 of what Kafka takes: the p50 is rather less.
    """

    batching: Batching
    rate: float
    p50: float
    p99: float
    mean_rows: float
    lane_busy: float


@dataclass(frozen=True, slots=True)
class Forecaster:
    """Asks the simulation. `transport`: seconds that Kafka takes, p99; `max_bytes`: a batch's, as in the settings.

    `chunks`: fewest and most records of one poll, which is otherwise as large as a batch.
    """

    costs: Costs
    transport: float
    request_rows: int = 1
    row_bytes: int = 1
    max_bytes: int = 1 << 62
    inflight_batches: int = 2
    chunks: tuple[int, int] = (32, 256)
    requests: int = REQUESTS

    def __call__(self, batching: Batching, rate: float) -> Forecast:
        """At so many requests a second."""
        found = self._simulated(batching, rate)
        p50, p99 = (self.transport + found.latency(percent) for percent in (50, 99))
        return Forecast(batching, rate, p50, p99, found.mean_rows, found.lane_busy)

    def ceiling(self, max_rows: int) -> float:
        """Requests a second of a replica that always has a backlog."""
        found = self._simulated(Batching(max_rows, 0.0), np.inf)
        return len(found.latencies) / found.seconds

    def _simulated(self, batching: Batching, rate: float) -> Simulated:
        max_rows, (fewest, most) = batching.max_rows, self.chunks
        return simulate(
            poisson(rate, self.requests, seed=0),
            BatchPolicy(max_rows, self.max_bytes, batching.linger),
            self.costs,
            request_rows=self.request_rows,
            row_bytes=self.row_bytes,
            conduct=Conduct(self.inflight_batches, min(most, max(fewest, max_rows))),
        )
