"""What a worker's steps cost, and those of a device that was measured.

An inference takes as long as one that was measured at its size did, by luck; between two sizes it lies between both, at
the same quantile. Stacking and splitting take their medians. What the loop does besides is no matter of the model: it
is measured once, on whole workers, and stands here as constants. So does what Kafka takes.

A stall, an inference that took far longer than its like, belongs to the machine and not to the size that it happened
to meet: large batches run too seldom to tell how often that is. So stalls of all sizes are counted together, by the
second in which inferences ran, and befall a long inference more often than a short one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Protocol

from worker.tools.profile.engine.sweep import Floats, SizeTimings

# The loop's CPU time around the model, besides stacking and splitting, as measured in 2026-11: 6 to 10 µs
# for a request, shared out in halves, and 36 to 38 µs for a batch.
TAKE_SECONDS = 5e-6
ANSWER_SECONDS = 5e-6
BATCH_SECONDS = 40e-6
# What a lane loses between two inferences: it wakes up, and takes the interpreter from a busy loop. By the same
# measurement 83 to 108 µs go by from one inference of 10 µs to the next.
HAND_OVER_SECONDS = 100e-6
# From a request's record to its answer's when neither waits for others: p50 4.6 ms and p99 7.1 to 9.5 ms by the same
# measurement, on the embedded broker.
TRANSPORT_SECONDS = 8e-3

# An inference of so many medians was held up: the same model on the same rows does not by itself take so much longer.
STALL = 3.0


class Costs(Protocol):
    """What each step takes, in seconds. `run` and `hand_over` are the lane's time, the others the loop's own."""

    def take(self, requests: int) -> float:
        """So many requests that came with one poll."""
        ...

    def stack(self, rows: int) -> float:
        """One batch, from its requests to its place in the lane's queue."""
        ...

    def run(self, rows: int, luck: float) -> float:
        """One inference. `luck` is uniform in [0, 1): the quantile of what such an inference may take."""
        ...

    def hand_over(self) -> float:
        """From one inference to the next, or from an idle lane's sleep to its inference."""
        ...

    def answer(self, requests: int, rows: int) -> float:
        """One finished batch, from its outputs to its answers on their way."""
        ...


class MeasuredCosts:
    """Answers for every number of rows up to the largest size measured; fewer than the smallest cost as much as it."""

    def __init__(self, sizes: Sequence[SizeTimings]) -> None:
        self._stack = {size.rows: size.stack_seconds for size in sizes}
        self._split = {size.rows: size.split_seconds for size in sizes}
        self._median = {size.rows: size.run_seconds(50) for size in sizes}
        self._calm = {size.rows: _calm(size.runs, self._median[size.rows]).tolist() for size in sizes}
        self._rows = sorted(self._calm)
        self._stalls = sorted(excess for size in sizes for excess in _stalls(size.runs, self._median[size.rows]))
        self._stalls_per_second = len(self._stalls) / sum(sum(calm) for calm in self._calm.values())

    def take(self, requests: int) -> float:
        return TAKE_SECONDS * requests

    def stack(self, rows: int) -> float:
        return BATCH_SECONDS + self._between(self._stack, rows)

    def run(self, rows: int, luck: float) -> float:
        """One inference, from the quickest at luck 0 to the worst stall at 1."""
        below, above, share = self._neighbours(rows)
        calm_until = 1 - min(0.5, self._stalls_per_second * self._between(self._median, rows))
        luck /= calm_until
        if luck >= 1:
            return self._between(self._median, rows) + _at(self._stalls, (luck - 1) * calm_until / (1 - calm_until))
        return (1 - share) * _at(self._calm[below], luck) + share * _at(self._calm[above], luck)

    def hand_over(self) -> float:
        return HAND_OVER_SECONDS

    def answer(self, requests: int, rows: int) -> float:
        return ANSWER_SECONDS * requests + self._between(self._split, rows)

    def _between(self, seconds: Mapping[int, float], rows: int) -> float:
        below, above, share = self._neighbours(rows)
        return (1 - share) * seconds[below] + share * seconds[above]

    def _neighbours(self, rows: int) -> tuple[int, int, float]:
        """The sizes measured on both sides, and how far up from the smaller one `rows` lies."""
        at = bisect_left(self._rows, rows)
        above = self._rows[at]
        if at == 0 or above == rows:
            return above, above, 0.0
        below = self._rows[at - 1]
        return below, above, (rows - below) / (above - below)


def _calm(runs: Floats, median: float) -> Floats:
    return runs[runs <= STALL * median]


def _stalls(runs: Floats, median: float) -> Sequence[float]:
    """By how much the others took longer."""
    excess: list[float] = (runs[runs > STALL * median] - median).tolist()
    return excess


def _at(ascending: Sequence[float], luck: float) -> float:
    return ascending[min(int(luck * len(ascending)), len(ascending) - 1)]
