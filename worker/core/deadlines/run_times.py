"""How long inferences take, learned from each that succeeds: by kind, and by rows in classes of powers of two.

A class keeps a mean and a mean deviation, both weighted towards the last runs, as TCP does with round trips (RFC 6298,
its weights), and expects the mean and two deviations: a forecast is of use only if most runs keep it. A single run that
took much too long (a page fault, a neighbour on the machine) moves it little; many in a row do. What was never seen is
estimated from its neighbours: more rows never take less, and twice the rows not more than twice as long.
"""

from __future__ import annotations

from bisect import bisect
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from worker.core.records import BatchKind

# With exact shapes a publisher may send any number of them: those that ran last are remembered, some 2 KiB each.
MOST_KINDS = 512
_MEAN_WEIGHT, _DEVIATION_WEIGHT = 1 / 8, 1 / 4
_DEVIATIONS = 2.0
# A run counts for at most so many times what was expected: a lone hiccup adds an eighth of it to the mean, and a device
# that has become slower is known after a few runs.
_LONGEST = 2.0


class _Times:
    """Of one class of rows, in seconds, and its mean rows."""

    __slots__ = ("deviation", "mean", "rows")

    def __init__(self, rows: int, seconds: float) -> None:
        self.rows = float(rows)
        self.mean = seconds
        self.deviation = seconds / 2

    def expected(self, deviations: float = _DEVIATIONS) -> float:
        return self.mean + deviations * self.deviation

    def note(self, rows: int, seconds: float) -> None:
        self.rows += _MEAN_WEIGHT * (rows - self.rows)
        off = min(seconds, _LONGEST * self.expected()) - self.mean
        self.deviation += _DEVIATION_WEIGHT * (abs(off) - self.deviation)
        self.mean += _MEAN_WEIGHT * off


@dataclass(slots=True, eq=False)
class _Learned:
    """What is known of batches of one kind: times by class, the usual rows, and when the last one ran."""

    times: dict[int, _Times] = field(default_factory=dict)
    rows: float = 1.0
    at: float = 0.0


class RunTimes:
    """Owns what was learned. Knows no lanes: how long a batch waits for one is the `Outlook`'s to say."""

    def __init__(self, most_kinds: int = MOST_KINDS) -> None:
        self._most_kinds = most_kinds
        self._learned: OrderedDict[BatchKind, _Learned] = OrderedDict()  # those that ran last at the end
        self.typical = 0.0  # seconds of a run of any kind

    def note(self, kind: BatchKind, rows: int, seconds: float, now: float) -> None:
        """A batch of so many rows of this kind took so long, and finished now."""
        learned = self._learned.get(kind)
        if learned is None:
            learned = self._learned[kind] = _Learned(rows=rows)
            if len(self._learned) > self._most_kinds:
                self._learned.popitem(last=False)
        else:
            self._learned.move_to_end(kind)
        learned.at = now
        learned.rows += _MEAN_WEIGHT * (rows - learned.rows)
        times = learned.times.get(_class_of(rows))
        if times is None:
            learned.times[_class_of(rows)] = _Times(rows, seconds)
        else:
            times.note(rows, seconds)
        self.typical += _MEAN_WEIGHT * (seconds - self.typical) if self.typical else seconds

    def expected(self, kind: BatchKind, rows: int, deviations: float = _DEVIATIONS) -> float:
        """Seconds that a batch of so many rows of this kind should take, rather too many; 0 if nothing is known.

        So many `deviations` above the mean: with 0 as many runs take longer as do not.
        """
        learned = self._learned.get(kind)
        if learned is None:
            return 0.0
        wanted = _class_of(rows)
        times = learned.times.get(wanted)
        if times is not None:
            return times.expected(deviations)
        larger = [known for known in learned.times if known > wanted]
        smaller = [known for known in learned.times if known < wanted]
        bounds = [learned.times[min(larger)].expected(deviations)] if larger else []
        if smaller:
            below = max(smaller)
            bounds.append(learned.times[below].expected(deviations) * 2.0 ** (wanted - below))
        return min(bounds)

    def mean(self, kind: BatchKind, rows: int) -> float:
        """Seconds that a batch of so many rows of this kind takes in the mean; 0 if nothing is known.

        Between two classes on the line through their means, beyond the largest with the slope of them all. Unlike what
        is `expected`, it tells one row more from one row less, which is what a comparison of ways to batch hangs on.
        """
        learned = self._learned.get(kind)
        if learned is None:
            return 0.0
        known = sorted((times.rows, times.mean) for times in learned.times.values())
        counts, means = [one[0] for one in known], _ascending([one[1] for one in known])
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

    def __repr__(self) -> str:
        return f"<RunTimes kinds={len(self._learned)} typical={self.typical * 1000:.3g}ms>"


def _ascending(means: Sequence[float]) -> list[float]:
    """The nearest that never fall: more rows never take less, and where chance says so, neighbours share their mean."""
    levels: list[tuple[float, int]] = []
    for mean in means:
        level, count = mean, 1
        while levels and levels[-1][0] > level:
            before, others = levels.pop()
            level = (level * count + before * others) / (count + others)
            count += others
        levels.append((level, count))
    return [level for level, count in levels for _ in range(count)]


def _class_of(rows: int) -> int:
    """0 for one row, 1 for two, 2 for three and four, 3 for five to eight, and so on."""
    return (rows - 1).bit_length()
