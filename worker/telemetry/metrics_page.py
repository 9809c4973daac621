"""The page that Prometheus reads, made of a snapshot when it is asked for.

Nothing else imports prometheus_client, and the first scrape imports this: a start would take 14 ms longer (2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from worker.telemetry.metrics import METRICS, HistogramState, Metric, Snapshot

PREFIX = "inference_worker_"
_SUFFIXES = {"counter": "_total", "info": "_info"}
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
            family = Family(PREFIX + metric.name, metric.question, "gauge" if metric.kind == "age" else metric.kind)
            if metric.kind == "histogram":
                _add_buckets(family, metric, snapshot.histogram(metric))
            else:
                _add_numbers(family, metric, snapshot, now)
            yield family

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
