"""What the live page shows, as plain values for JSON: made of a snapshot, when it is asked for.

Counters and buckets go out as they stand; the page takes the difference of two answers, so nothing here is remembered
between them. No payload, key or secret is among the values. Runs on the server's threads and reads nothing live.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from itertools import islice
from math import isfinite
from typing import Any, NamedTuple

from worker.telemetry.metrics import declared as metrics
from worker.telemetry.metrics.metric_values import STOPPING, Metric, Snapshot
from worker.telemetry.reasons import RecentRejection
from worker.version import VERSION

Values = dict[str, Any]

MOST_PARTITIONS = 100  # shown, those furthest behind; a few kilobytes a second
MOST_REASONS = 8  # shown, the latest; those that read alike count as one
LONG_TURN = 5.0  # seconds; a rebalance that waits for running batches takes as long now and then
SLOW_COMMIT = 30.0  # seconds without a commit, as the alert has it


class Deployment(NamedTuple):
    """What is set and does not change while the worker runs. `replicas`: where the others' pages are."""

    group: str
    requests: tuple[str, ...]
    answers: str
    guarantee: str
    lanes: int
    has_state: bool
    replicas: tuple[str, ...] = ()


def status(snapshot: Snapshot, deployment: Deployment, dead: str | None, now: float, date: float) -> Values:
    """The values of one answer. `dead` says why the worker counts as dead; `date` is seconds since the epoch."""
    seen = _Seen(snapshot)
    phase, why = _phase(snapshot, seen, dead)
    return {
        "at": snapshot.turned_at,
        "phase": phase,
        "why": why,
        "notices": list(_notices(snapshot, seen, now)),
        "worker": {"version": VERSION, "host": platform.node(), "process": os.getpid()},
        "deployment": deployment._asdict(),
        "model": seen.labels(metrics.MODEL),
        "linger": seen.number(metrics.LINGER),
        "taken": seen.number(metrics.RECORDS_TAKEN),
        "settled": seen.number(metrics.RECORDS_SETTLED),
        "latency": seen.buckets(metrics.END_TO_END),
        "inference": seen.sum(metrics.INFERENCE),
        "running": 0.0 if snapshot.running_since is None else max(0.0, now - snapshot.running_since),
        "fill": seen.sum(metrics.BATCH_FILL),
        "batches": [
            {"by": by, "batches": batches, "rows": seen.number(metrics.BATCH_ROWS, by)}
            for (by,), batches in seen.each(metrics.BATCHES)
        ],
        "held": [_held(seen, name, *bound) for name, bound in _BOUNDS.items()],
        "partitions": _partitions(seen, now),
        "rejections": [{"code": code, "count": count} for (code,), count in seen.each(metrics.REJECTIONS)],
        "reasons": _reasons(snapshot, date),
        "state": _state(seen),
    }


_BOUNDS = {
    "requests": (metrics.RECORDS_IN_FLIGHT, metrics.RECORDS_LIMIT),
    "rows": (metrics.ROWS_IN_FLIGHT, metrics.ROWS_LIMIT),
    "bytes": (metrics.BYTES_IN_FLIGHT, metrics.BYTES_LIMIT),
}


class _Seen:
    """A snapshot's numbers by metric; 0 and empty where it has none yet."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def each(self, metric: Metric) -> list[tuple[tuple[str, ...], float]]:
        return list(self._snapshot.numbers.get(metric, {}).items())

    def number(self, metric: Metric, *labels: str) -> float:
        return self._snapshot.numbers.get(metric, {}).get(labels, 0.0)

    def labels(self, metric: Metric) -> Mapping[str, str] | None:
        """Those of the only sample of an INFO."""
        return next((dict(zip(metric.labels, labels, strict=True)) for labels, _ in self.each(metric)), None)

    def buckets(self, metric: Metric) -> Values:
        state = self._snapshot.histograms.get(metric)
        return {"bounds": metric.bounds, "counts": [0] * (len(metric.bounds) + 1) if state is None else state.counts}

    def sum(self, metric: Metric) -> float:
        """Of all that a histogram has observed."""
        state = self._snapshot.histograms.get(metric)
        return 0.0 if state is None else state.total


def _phase(snapshot: Snapshot, seen: _Seen, dead: str | None) -> tuple[str, str | None]:
    """The worker's state in a word, and why it is no other one."""
    if dead is not None:
        return "stuck", dead
    # The client tells of lags and connections together, once a second: before that nothing is known of either.
    if seen.each(metrics.LAG) and not seen.number(metrics.CONNECTIONS, "consumer"):
        return "cut_off", "no broker can be reached; requests wait in Kafka"
    if snapshot.unready is None:
        return "serving", None
    if snapshot.unready == STOPPING:
        return "draining", "told to stop: what was taken is finished, and nothing new is"
    if seen.number(metrics.TOPICS_ABSENT):
        return "topic_gone", snapshot.unready
    if (stalled := _stalled(seen)) and len(stalled) == len(seen.each(metrics.STALLED)):
        return "stalled", snapshot.unready
    return "restoring" if seen.number(metrics.RESTORING) else "starting", snapshot.unready


def _notices(snapshot: Snapshot, seen: _Seen, now: float) -> Iterator[Values]:
    """What asks for an operator; `alert` is the runbook's heading."""
    if snapshot.turned_at is not None and (still := now - snapshot.turned_at) > LONG_TURN:
        yield _notice(f"The loop has not turned for {still:.0f} s; the figures are of then.", "Stuck")
    if seen.number(metrics.PAUSED):
        yield _notice("Fetching is paused: too much is in flight.", "Paused")
    if (since := dict(seen.each(metrics.COMMIT_LAG)).get(())) is not None and now - since > SLOW_COMMIT:
        yield _notice(f"No commit has got through for {now - since:.0f} s.", "CommitsFail")
    if stalled := _stalled(seen):
        (topic, number), since = min(stalled, key=lambda one: one[1])
        more = f" and {len(stalled) - 1} more" if len(stalled) > 1 else ""
        yield _notice(
            f"{topic}/{number}{more} gives nothing although its log goes on, for {now - since:.0f} s.",
            "PartitionStalled",
        )
    if suspects := seen.number(metrics.SUSPECTS):
        yield _notice(f"Partitions whose records run one at a time: {suspects:.0f}.", "PartitionSuspected")
    if failed := seen.number(metrics.RUNS, "failed"):
        yield _notice(f"Inferences that failed since the start: {failed:,.0f}.", "InferenceFails")
    if deleted := seen.number(metrics.DELETED):
        yield _notice(f"Requests that retention deleted before they were read: {deleted:,.0f}.", "RequestsDeleted")


def _stalled(seen: _Seen) -> list[tuple[tuple[str, ...], float]]:
    """The partitions that stand still, and since when."""
    return [(partition, since) for partition, since in seen.each(metrics.STALLED) if isfinite(since)]


def _notice(text: str, alert: str) -> Values:
    return {"text": text, "alert": f"InferenceWorker{alert}"}


def _held(seen: _Seen, name: str, metric: Metric, limit: Metric) -> Values:
    return {"name": name, "now": seen.number(metric), "limit": seen.number(limit)}


def _partitions(seen: _Seen, now: float) -> Values:
    lags = dict(seen.each(metrics.LAG))
    rows: list[Values] = [
        {
            "partition": f"{topic}/{number}",
            "lag": lags.get((topic, number)),
            "oldest": max(0.0, now - taken_at) if isfinite(taken_at) else None,
        }
        for (topic, number), taken_at in sorted(
            seen.each(metrics.STALL), key=lambda held: (held[0][0], int(held[0][1]))
        )
    ]
    # Those far behind come first. By magnitude: rows that change places every second cannot be read.
    rows.sort(key=lambda row: -(int(row["lag"] or 0).bit_length() // 3))
    return {"count": len(rows), "lag": sum(row["lag"] or 0 for row in rows), "furthest": rows[:MOST_PARTITIONS]}


def _reasons(snapshot: Snapshot, date: float) -> list[Values]:
    latest: dict[tuple[str, str], RecentRejection] = {}
    for rejection in sorted(snapshot.rejected, key=lambda rejection: rejection.date):
        latest.pop(key := (rejection.code, rejection.reason), None)  # a later one takes the last place
        latest[key] = rejection
    return [
        {"code": code, "reason": reason, "source": rejection.source, "ago": max(0.0, date - rejection.date)}
        for (code, reason), rejection in islice(reversed(latest.items()), MOST_REASONS)
    ]


def _state(seen: _Seen) -> Values:
    return {
        "keys": seen.number(metrics.STATES),
        "bytes": seen.number(metrics.STATE_BYTES),
        "waiting": seen.number(metrics.WAITING_FOR_KEY),
        "restoring": seen.number(metrics.RESTORING),
        "left": seen.number(metrics.RESTORE_LEFT),
    }
