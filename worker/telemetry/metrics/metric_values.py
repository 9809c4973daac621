"""What is measured, declared once, and the plain numbers it is counted in.

Counting costs a dictionary entry or a bucket, once per batch. The loop's thread owns the `MetricValues`; other threads
read a `Snapshot`, which never changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from worker.core.tensors.signature import Signature
from worker.telemetry.reasons import RecentRejection

Labels = tuple[str, ...]

STOPPING = "stopping"  # why a worker that drains is not ready


class MetricKind(Enum):
    COUNTER = auto()
    GAUGE = auto()
    AGE = auto()  # the snapshot holds an instant, the reader sees the seconds since; 0 where there is none
    HISTOGRAM = auto()
    INFO = auto()


@dataclass(frozen=True, slots=True, eq=False)  # one object per metric: looked up by identity
class Metric:
    """One declared metric. `question` is what it answers; `values` are label values known beforehand, shown from 0."""

    name: str
    kind: MetricKind
    question: str
    labels: Labels = ()
    values: tuple[Labels, ...] = ()
    bounds: tuple[float, ...] = ()


class HistogramState(NamedTuple):
    """A histogram's state: observations per bucket, one bucket more than the metric has bounds, and their sum."""

    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The numbers at one instant, `turned_at` (monotonic seconds; None before the loop's first turn).

    `unready` says why no request should be expected to be answered now; None means ready. `rejected` has the last few
    of each code. `served` is what requests and answers are, once that is known.
    """

    unready: str | None = "starting"
    turned_at: float | None = None
    running_since: float | None = None
    numbers: Mapping[Metric, Mapping[Labels, float]] = field(default_factory=dict)
    histograms: Mapping[Metric, HistogramState] = field(default_factory=dict)
    rejected: Sequence[RecentRejection] = ()
    served: Signature | None = None


class MetricValues:
    """The numbers as they grow. One thread."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._numbers: dict[Metric, dict[Labels, float]] = {}
        self._histograms: dict[Metric, Histogram] = {}
        for metric in metrics:
            if metric.kind is MetricKind.HISTOGRAM:
                self._histograms[metric] = Histogram(metric.bounds)
            else:
                self._numbers[metric] = _unknown(metric)

    def begin_anew(self) -> None:
        """Forget what holds at an instant; what was counted goes on."""
        for metric in self._numbers:
            if metric.kind is not MetricKind.COUNTER:
                self._numbers[metric] = _unknown(metric)

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        numbers = self._numbers[metric]
        numbers[labels] = numbers.get(labels, 0.0) + amount

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        self._numbers[metric][labels] = value

    def replace(self, metric: Metric, values: Mapping[Labels, float]) -> None:
        """Label values that are not among these are forgotten: a partition that moved is not ours to report."""
        self._numbers[metric] = dict(values)

    def observe(self, metric: Metric, value: float, times: int = 1) -> None:
        self._histograms[metric].observe(value, times)

    def numbers(self) -> dict[Metric, Mapping[Labels, float]]:
        return {metric: dict(numbers) for metric, numbers in self._numbers.items()}

    def histograms(self) -> dict[Metric, HistogramState]:
        return {metric: histogram.state for metric, histogram in self._histograms.items()}


def _unknown(metric: Metric) -> dict[Labels, float]:
    known = metric.values or (((),) if not metric.labels and metric.kind is not MetricKind.AGE else ())
    return dict.fromkeys(known, 0.0)


class Histogram:
    """Observations counted in buckets; a bucket holds what is at most its bound and above the one before."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = list(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times

    @property
    def state(self) -> HistogramState:
        return HistogramState(tuple(self._counts), self._total)
