"""What happened between two snapshots, as a row for a terminal. Pure.

Latency comes from a histogram's buckets: a quantile is told as if the answers of its bucket were spread evenly in it.
"""

from __future__ import annotations

from typing import NamedTuple

from worker.telemetry.metrics import declared as metrics
from worker.telemetry.metrics.metric_values import Metric, Snapshot

_WIDTHS = {"requests/s": 10, "answers/s": 11, "errors": 8, "batch fill": 12, "p50": 9, "p99": 9, "lag": 9}
HEADS = "".join(head.rjust(width) for head, width in _WIDTHS.items())


class Rates(NamedTuple):
    """`requests` and `answers` a second, `errors` among the answers. `fill` of a batch is a share of MAX_BATCH_SIZE,
    latencies are seconds; None: no batch, no answer. `lag` is None until the client has told it.
    """

    requests: float
    answers: float
    errors: float
    fill: float | None
    p50: float | None
    p99: float | None
    lag: float | None
    in_flight: float

    @property
    def is_idle(self) -> bool:
        return not (self.requests or self.answers or self.errors or self.in_flight)

    @property
    def row(self) -> str:
        """Beneath `HEADS`."""
        cells = (
            _number(self.requests),
            _number(self.answers),
            _number(self.errors),
            _NONE if self.fill is None else f"{self.fill:.0%}",
            _duration(self.p50),
            _duration(self.p99),
            _NONE if self.lag is None else _number(self.lag),
        )
        return "".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS.values(), strict=True))


_NONE = "–"


def rates(earlier: Snapshot, later: Snapshot) -> Rates | None:
    """None where the loop has not turned in between."""
    if earlier.turned_at is None or later.turned_at is None or later.turned_at <= earlier.turned_at:
        return None
    seconds = later.turned_at - earlier.turned_at

    def grown(metric: Metric) -> float:
        return _total(later, metric) - _total(earlier, metric)

    batches = grown(metrics.BATCHES)
    filled = later.histograms[metrics.BATCH_FILL].total - earlier.histograms[metrics.BATCH_FILL].total
    latency = [
        now - before
        for now, before in zip(
            later.histograms[metrics.END_TO_END].counts, earlier.histograms[metrics.END_TO_END].counts, strict=True
        )
    ]
    return Rates(
        grown(metrics.RECORDS_TAKEN) / seconds,
        grown(metrics.RECORDS_SETTLED) / seconds,
        grown(metrics.REJECTIONS),
        filled / batches if batches else None,
        quantile(0.5, metrics.END_TO_END.bounds, latency),
        quantile(0.99, metrics.END_TO_END.bounds, latency),
        _total(later, metrics.LAG) if later.numbers[metrics.LAG] else None,
        _total(later, metrics.RECORDS_IN_FLIGHT),
    )


def _total(snapshot: Snapshot, metric: Metric) -> float:
    return sum(snapshot.numbers[metric].values())


def quantile(share: float, bounds: tuple[float, ...], counts: list[int]) -> float | None:
    """Of what was counted in these buckets; at most the last bound. None where nothing was."""
    wanted, below, floor = share * sum(counts), 0, 0.0
    if not wanted:
        return None
    for bound, count in zip(bounds, counts, strict=False):  # the last bucket has no bound
        if below + count >= wanted:
            return floor + (bound - floor) * (wanted - below) / count
        below, floor = below + count, bound
    return floor


def _number(value: float) -> str:
    return f"{value:,.1f}" if 0 < value < 10 and value % 1 else f"{value:,.0f}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return _NONE
    if seconds >= 1:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    return f"{seconds * 1000:.{2 if seconds < 0.001 else 1 if seconds < 0.01 else 0}f} ms"
