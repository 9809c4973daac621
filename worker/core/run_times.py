"""How long inferences take, learned from each that succeeds: by kind, and by rows in classes of powers of two.

A class keeps a mean that is weighted towards the last runs, as TCP does with round trips (RFC 6298, its weight). A
single run that took much too long (a page fault, a neighbour on the machine) moves it little; many in a row do.
"""

from __future__ import annotations

from bisect import bisect
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from worker.core.records import BatchKind

# With exact shapes a publisher may send any number of kinds: the last ones that ran are remembered, some 2 KiB each.
MOST_KINDS = 512
_WEIGHT = 1 / 8
# A run counts for at most so many times the mean: a device that has become slower is known after a few runs.
_LONGEST = 4.0


@dataclass(slots=True, eq=False)
class _Learned:
    """Batches of one kind: mean rows and seconds by class and in ascending order, usual rows, and when the last ran."""

    classes: dict[int, tuple[float, float]] = field(default_factory=dict)
    counts: Sequence[float] = ()
    means: Sequence[float] = ()
    rows: float = 1.0
    at: float = 0.0


class RunTimes:
    """Owns the means. Knows no lanes: how long a batch waits for one is the forecast's to say."""

    def __init__(self, most_kinds: int = MOST_KINDS) -> None:
        self._most_kinds = most_kinds
        self._learned: OrderedDict[BatchKind, _Learned] = OrderedDict()  # the last one that ran at the end

    def note(self, kind: BatchKind, rows: int, seconds: float, now: float) -> None:
        """A batch of so many rows of this kind took so long, and finished now."""
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
        learned.means = [*accumulate(reversed(means), min)][::-1]  # fewer rows never take longer, whatever chance says

    def mean(self, kind: BatchKind, rows: int) -> float:
        """Seconds that a batch of so many rows of this kind takes in the mean; 0 if nothing is known.

        Between two classes on the line through their means, beyond the largest with the slope of them all.
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
        """The rows of a usual batch of this kind; 1 if nothing is known."""
        learned = self._learned.get(kind)
        return 1 if learned is None else round(learned.rows)

    def noted_at(self, kind: BatchKind) -> float | None:
        """When the last batch of this kind finished; None if none is remembered."""
        learned = self._learned.get(kind)
        return None if learned is None else learned.at
