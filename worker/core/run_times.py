"""Learns how long inferences take, from each that succeeds: by kind, and by rows in classes of powers of two.

A class keeps a mean that gives the last runs more weight, as TCP does with round trips (RFC 6298, with its weight). A
single run that took much too long (a page fault, a neighbour on the machine) moves it little; many in a row move it.
"""

from __future__ import annotations

from bisect import bisect
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from worker.core.records import BatchKind

# Publishers may send any number of kinds where shapes are not padded, so only the last are kept, some 2 KiB each.
MOST_KINDS = 512
_WEIGHT = 1 / 8
# A run counts for at most this many times the mean. So a slower device is still noticed after a few runs.
_LONGEST = 4.0


@dataclass(slots=True, eq=False)
class _Learned:
    """The run times of one kind: mean rows and seconds, by class and in ascending order; usual rows; the last run."""

    classes: dict[int, tuple[float, float]] = field(default_factory=dict)
    counts: Sequence[float] = ()
    means: Sequence[float] = ()
    rows: float = 1.0
    at: float = 0.0


class RunTimes:
    """Owns the mean run times. Knows no lanes: `Punctuality` forecasts how long a batch waits for one."""

    def __init__(self, most_kinds: int = MOST_KINDS) -> None:
        self._most_kinds = most_kinds
        self._learned: OrderedDict[BatchKind, _Learned] = OrderedDict()  # in the order of their last runs

    def note(self, kind: BatchKind, rows: int, seconds: float, now: float) -> None:
        """Learn that a batch of `rows` rows of this kind took `seconds`, and finished now."""
        learned = self._learned.setdefault(kind, _Learned(rows=rows))
        self._learned.move_to_end(kind)
        if len(self._learned) > self._most_kinds:
            self._learned.popitem(last=False)
        learned.at = now
        learned.rows += _WEIGHT * (rows - learned.rows)
        of_rows = (rows - 1).bit_length()  # 0 for one row, 1 for two, 2 for three and four, 3 for five to eight
        mean_rows, mean = learned.classes.get(of_rows, (rows, seconds))
        off = min(seconds, _LONGEST * mean) - mean
        learned.classes[of_rows] = (mean_rows + _WEIGHT * (rows - mean_rows), mean + _WEIGHT * off)
        learned.counts, means = zip(*sorted(learned.classes.values()), strict=True)
        learned.means = [*accumulate(reversed(means), min)][::-1]  # fewer rows take longer only by chance

    def mean(self, kind: BatchKind, rows: int) -> float:
        """The mean seconds that a batch of `rows` rows of this kind takes; 0 if nothing is known.

        Between two classes it is on the line through their means; beyond the largest it has the slope of all classes.
        """
        learned = self._learned.get(kind)
        if learned is None:
            return 0.0
        counts, means = learned.counts, learned.means
        at = bisect(counts, rows)
        if at == 0:
            return means[0]
        if at < len(counts):
            share = (rows - counts[at - 1]) / (counts[at] - counts[at - 1])
            return means[at - 1] + share * (means[at] - means[at - 1])
        slope = (means[-1] - means[0]) / (counts[-1] - counts[0]) if at > 1 else means[0] / counts[0]
        return means[-1] + slope * (rows - counts[-1])

    def usual_rows(self, kind: BatchKind) -> int:
        """How many rows a usual batch of this kind has; 1 if nothing is known."""
        learned = self._learned.get(kind)
        return 1 if learned is None else round(learned.rows)

    def noted_at(self, kind: BatchKind) -> float | None:
        """When the last batch of this kind finished; None if none is remembered."""
        learned = self._learned.get(kind)
        return None if learned is None else learned.at
