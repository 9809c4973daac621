"""The page that Prometheus reads, rendered from a snapshot when it is asked for.

Nothing else imports prometheus_client. The first scrape imports this: a start would take 12 to 20 ms longer (2026).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from worker.telemetry.metrics.declared import METRICS
from worker.telemetry.metrics.metric_values import HistogramState, Labels, Metric, MetricKind, Snapshot

PREFIX = "inference_worker_"
# The library compares versions as numbers, and fails at any other; it writes one that it takes into our answer's head.
_ODD_VERSION = re.compile(r"version=(?!\d{1,9}(\.\d{1,9})*\s*([;,]|$))", re.ASCII)


class SnapshotCollector(Collector):
    """The latest snapshot, as Prometheus's client wants it. `clock` is the loop's: it turns instants into ages."""

    def __init__(self, latest: Callable[[], Snapshot], clock: Callable[[], float]) -> None:
        self._latest = latest
        self._clock = clock

    def collect(self) -> Iterator[Family]:
        snapshot, now = self._latest(), self._clock()
        for metric in METRICS:
            if metric.kind is MetricKind.HISTOGRAM:
                yield _histogram(metric, snapshot.histograms.get(metric))
            elif metric.kind is MetricKind.AGE:
                yield _family(metric, _ages(metric, snapshot, now))
            elif metric.kind is MetricKind.INFO:
                yield _info(metric, snapshot.numbers.get(metric, {}))
            else:
                yield _family(metric, snapshot.numbers.get(metric, {}).items())

    def describe(self) -> list[Family]:
        """No names to check for collisions: the registry would collect once before there is anything."""
        return []


class MetricsPage:
    """`/metrics`: our metrics, and the process's own (memory, processor time, descriptors)."""

    def __init__(self, latest: Callable[[], Snapshot], clock: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(SnapshotCollector(latest, clock))
        ProcessCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type, for a request's `Accept` header; plain where its versions are none."""
        encode, content_type = choose_encoder("" if _ODD_VERSION.search(accept) else accept)
        return encode(self._registry), content_type


def _ages(metric: Metric, snapshot: Snapshot, now: float) -> Iterator[tuple[Labels, float]]:
    instants = snapshot.numbers.get(metric, {})
    if not instants and not metric.labels:
        yield (), 0.0
    for labels, instant in instants.items():
        yield labels, max(0.0, now - instant)


def _family(metric: Metric, samples: Iterable[tuple[Labels, float]]) -> Family:
    of_kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = of_kind(PREFIX + metric.name, metric.question, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _info(metric: Metric, known: Iterable[Labels]) -> Family:
    family = InfoMetricFamily(PREFIX + metric.name, metric.question)
    for labels in known:
        family.add_metric((), dict(zip(metric.labels, labels, strict=True)))
    return family


def _histogram(metric: Metric, state: HistogramState | None) -> Family:
    family = HistogramMetricFamily(PREFIX + metric.name, metric.question)
    if state is not None:
        bounds = [*map(str, metric.bounds), "+Inf"]
        family.add_metric((), list(zip(bounds, accumulate(state.counts), strict=True)), state.total)
    return family
