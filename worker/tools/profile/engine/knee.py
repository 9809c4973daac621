"""The knee of a sweep: where a larger batch stops paying for itself.

It is the smallest batch size with nine tenths of the best rows/s that was measured. Beyond it a batch buys at most a
tenth more and makes everybody in it wait for the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ENOUGH = 0.9  # of the best. Two sweeps differ by a few percent in every size, so a knee at 0.98 would move with each


class Knee(NamedTuple):
    """`share` is of the best rows/s. `is_last`: the largest size measured, so the curve may well go on rising."""

    rows: int
    rows_per_s: float
    share: float
    gain: float  # rows/s against the smallest size measured
    is_last: bool


def knee(rates: Mapping[int, float]) -> Knee:
    """Of rows/s by batch size, ascending and at least one."""
    best, smallest = max(rates.values()), next(iter(rates))
    rows = next(rows for rows, rate in rates.items() if rate >= ENOUGH * best)
    is_last = rows == max(rates)
    return Knee(rows, rates[rows], rates[rows] / best, rates[rows] / rates[smallest], is_last)
