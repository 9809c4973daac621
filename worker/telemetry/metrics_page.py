"""The page that Prometheus reads, made of a snapshot when it is asked for.

Nothing else imports prometheus_client. The first scrape imports this module: at start it would take 14 ms (2026-11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from worker.telemetry.metrics import METRICS, HistogramState, Metric, Snapshot

PREFIX = "inference_worker_"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_SUFFIXES = {"counter": "_total", "info": "_info"}


class MetricsPage(Collector):
    """`/metrics`: the latest snapshot, and the figures of both processes (memory, processor time, descriptors)."""

    def __init__(self, latest: Callable[[], Snapshot], clock: Callable[[], float]) -> None:
        """`clock` is the loop's: it turns instants into ages."""
        self._latest, self._clock = latest, clock
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        # Without such a process it reads `/proc/None`, and shows nothing.
        ProcessCollector(f"{PREFIX}model_host", lambda: str(latest().host), registry=self._registry)

    def render(self) -> tuple[bytes, str]:
        return generate_latest(self._registry), _TEXT

    def collect(self) -> Iterator[Family]:
        snapshot, now = self._latest(), self._clock()
        for metric in METRICS:
            family = Family(PREFIX + metric.name, metric.question, "gauge" if metric.kind == "age" else metric.kind)
            if metric.kind == "histogram":
                _add_buckets(family, metric, snapshot.histogram(metric))
            else:
                _add_numbers(family, metric, snapshot, now)
            yield family


def _add_numbers(family: Family, metric: Metric, snapshot: Snapshot, now: float) -> None:
    numbers = snapshot.numbers.get(metric, {})
    if metric.kind == "age":
        known = {(): now} if not metric.labels else {}
        numbers = {labels: max(0.0, now - instant) for labels, instant in (numbers or known).items()}
    name = family.name + _SUFFIXES.get(metric.kind, "")
    for labels, value in numbers.items():
        family.add_sample(name, dict(zip(metric.labels, labels, strict=True)), value)


def _add_buckets(family: Family, metric: Metric, state: HistogramState) -> None:
    bounds = [*map(str, metric.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(state.counts), strict=True):
        family.add_sample(f"{family.name}_bucket", {"le": bound}, count)
    family.add_sample(f"{family.name}_count", {}, sum(state.counts))
    family.add_sample(f"{family.name}_sum", {}, state.total)
