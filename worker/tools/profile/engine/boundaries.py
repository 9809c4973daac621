"""Where buckets should end so that the rows of a sample, each padded to the end of its bucket, cost least.

For every number of buckets the best boundaries are found by dynamic programming over the candidates:

    best(k, j) = least over i < j of  best(k-1, i) + work(j, rows longer than i and no longer than j)

What rows cost is passed in: seconds as they were measured, in which long rows may cost more than in proportion
(attention) and a bucket with few rows has small batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.tools.profile.engine.lengths import Ints

Floats = NDArray[np.float64]
Work = Callable[[int, Floats], Floats]  # what so many rows (an array of counts) cost, padded to this length

# Tensor cores take the sides of half-precision matrices in eights (16 bytes); and lengths that are round are fewer.
STEP = 8
# Rounding may add so much to the cost before exact boundaries are advised. Two sweeps differ by more.
NEXT_TO_NOTHING = 0.03
MOST = 8  # buckets considered: each needs a warm-up, memory for its shapes, and requests enough to fill its batches
# A bucket more has to save so much of the work. Less is lost in the differences between two sweeps, and in batches that
# are not full.
WORTH = 0.05
# Candidates that are compared: their square is the work. 512 hold every eighth length up to 4,096.
MOST_CANDIDATES = 512


class BucketPlan(NamedTuple):
    """`boundaries` ascend; the last holds the longest row. `cost` is that of the whole sample."""

    boundaries: tuple[int, ...]
    cost: float


def advise(lengths: Ints, longest: int | None, work: Work, buckets: int | None = None) -> BucketPlan:
    """The plan of at most so many buckets, or of as many as are worth it. The last one ends at `longest`, if given.

    Ends are rounded up to eights unless that costs more than next to nothing.
    """
    step = STEP
    while lengths.max() > step * MOST_CANDIDATES:
        step *= 2
    rounded, exact = candidates(lengths, longest, step), candidates(lengths, longest, 1)
    plan = _chosen(lengths, rounded if len(exact) > MOST_CANDIDATES else exact, work, buckets)
    round_ = best(lengths, rounded, work, len(plan.boundaries))[-1]
    return round_ if round_.cost <= (1 + NEXT_TO_NOTHING) * plan.cost else plan


def _chosen(lengths: Ints, ends: Sequence[int], work: Work, buckets: int | None) -> BucketPlan:
    return choose(best(lengths, ends, work, MOST)) if buckets is None else best(lengths, ends, work, buckets)[-1]


def choose(found: Sequence[BucketPlan]) -> BucketPlan:
    """The fewest buckets to which no more of them, however many, would save `WORTH` of the work each."""
    return next(
        plan
        for at, plan in enumerate(found)
        if all(plan.cost - more.cost < WORTH * n * plan.cost for n, more in enumerate(found[at + 1 :], 1))
    )


def candidates(lengths: Ints, longest: int | None, step: int) -> list[int]:
    """Ends that a bucket may have: the lengths seen, rounded up, and `longest`, which no length exceeds."""
    ends = -(-np.unique(lengths) // step) * step
    if longest is not None:
        ends = np.append(np.minimum(ends, longest), longest)
    found: list[int] = np.unique(ends).tolist()
    return found


def best(lengths: Ints, ends: Sequence[int], work: Work, most: int) -> list[BucketPlan]:
    """Of these ends, the last of which holds every length: `most` plans, or as many as there are ends."""
    below = np.concatenate([[0], np.searchsorted(np.sort(lengths), ends, side="right")])
    costs = np.full((len(ends), len(ends)), np.inf)  # of a bucket that begins behind end i - 1 and goes to end j
    for at, end in enumerate(ends):
        costs[: at + 1, at] = work(end, (below[at + 1] - below[: at + 1]).astype(np.float64))
    least = costs[0]
    begins: list[Ints] = []
    found = [BucketPlan((ends[-1],), float(least[-1]))]
    for _ in range(1, min(most, len(ends))):
        least, begin = _with_one_more(least, costs)
        begins.append(begin)
        found.append(min(found[-1], BucketPlan(_ends(ends, begins), float(least[-1])), key=lambda plan: plan.cost))
    return found


def _with_one_more(least: Floats, costs: Floats) -> tuple[Floats, Ints]:
    """The least cost up to each end with one bucket more, and where the last of them begins."""
    totals = least[:-1, None] + costs[1:]
    begin = np.argmin(totals, axis=0)
    return totals[begin, np.arange(len(costs))], begin + 1


def _ends(ends: Sequence[int], begins: Sequence[Ints]) -> tuple[int, ...]:
    """Read back from the last end, bucket by bucket."""
    at, found = len(ends) - 1, [ends[-1]]
    for begin in reversed(begins):
        at = int(begin[at]) - 1
        found.append(ends[at])
    return tuple(reversed(found))
