"""The live page's own paths: its files, as they lie in `page/`, and `/status`, which the page draws.

`/status` is made of a snapshot when it is asked for, on the server's threads. Counters and buckets go out as they are:
the page takes the difference of two answers, so nothing is remembered between them. No payload, key or secret is among
the values.
"""

from __future__ import annotations

import json
import os
import platform
import time
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

from worker.telemetry import metrics
from worker.telemetry.health import Deployment
from worker.telemetry.metrics import Metric, Snapshot
from worker.version import VERSION

Values = dict[str, Any]

STATUS = "/status"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
MOST_PARTITIONS = 100  # shown, those furthest behind; a few kilobytes a second
_WHY = {
    "cut_off": "no broker can be reached; requests wait in Kafka",
    "draining": "told to stop: what was taken is finished, and nothing new is",
}


def live_page(
    path: str, deployment: Deployment, snapshot: Snapshot, dead: str | None, now: float, up: float
) -> tuple[bytes, str] | None:
    """The content for this path and its type; None for a path that is not the page's.

    `dead` says why the snapshot's worker counts as dead; `now` is by the loop's clock, `up` in seconds.
    """
    if path == STATUS:
        values = _status(deployment, snapshot, dead, now, up)
        return json.dumps(values, separators=(",", ":"), allow_nan=False).encode(), "application/json"
    if path not in FILES:
        return None
    name, content_type = FILES[path]
    return _content(name), content_type


def _status(deployment: Deployment, snapshot: Snapshot, dead: str | None, now: float, up: float) -> Values:
    return {
        "at": snapshot.turned_at,
        "still": 0.0 if snapshot.turned_at is None else max(0.0, now - snapshot.turned_at),
        "phase": snapshot.phase if dead is None else "stuck",
        "why": dead or _WHY.get(snapshot.phase, snapshot.unready),
        "worker": _process(snapshot, up),
        "deployment": deployment._asdict(),
        "model": _model(snapshot),
        "linger": snapshot.number(metrics.LINGER),
        "taken": snapshot.number(metrics.RECORDS_TAKEN),
        "settled": snapshot.number(metrics.RECORDS_SETTLED),
        "latency": {
            "bounds": metrics.END_TO_END.bounds,
            "counts": snapshot.histogram(metrics.END_TO_END).counts,
        },
        "inference": snapshot.histogram(metrics.INFERENCE).total,
        "loop": snapshot.number(metrics.LOOP),
        "running": 0.0 if snapshot.running_since is None else max(0.0, now - snapshot.running_since),
        "most_rows": snapshot.number(metrics.MAX_BATCH_ROWS),
        "batches": [
            {"by": by, "batches": batches, "rows": snapshot.number(metrics.BATCH_ROWS, by)}
            for (by,), batches in _each(snapshot, metrics.BATCHES)
        ],
        "held": [
            {"name": name, "now": snapshot.number(held), "limit": snapshot.number(limit)}
            for name, held, limit in _BOUNDS
        ],
        "partitions": _partitions(snapshot, now),
        "rejections": [{"code": code, "count": count} for (code,), count in _each(snapshot, metrics.REJECTIONS)],
        "reasons": _reasons(snapshot, time.time()),
        "state": {
            "keys": snapshot.number(metrics.STATES),
            "bytes": snapshot.number(metrics.STATE_BYTES),
            "waiting": snapshot.number(metrics.WAITING_FOR_KEY),
            "restoring": snapshot.number(metrics.RESTORING),
            "left": snapshot.number(metrics.RESTORE_LEFT),
        },
    }


_BOUNDS = (
    ("requests", metrics.RECORDS_IN_FLIGHT, metrics.RECORDS_LIMIT),
    ("rows", metrics.ROWS_IN_FLIGHT, metrics.ROWS_LIMIT),
    ("bytes", metrics.BYTES_IN_FLIGHT, metrics.BYTES_LIMIT),
)


@cache
def _content(name: str) -> bytes:
    return (files("worker.telemetry") / "page" / name).read_bytes()


def _each(snapshot: Snapshot, metric: Metric) -> list[tuple[tuple[str, ...], float]]:
    return list(snapshot.numbers.get(metric, {}).items())


def _process(snapshot: Snapshot, up: float) -> Values:
    return {
        "version": VERSION,
        "host": platform.node(),
        "process": os.getpid(),
        "up": up,
        "processor": time.process_time(),
        "memory": memory_used(),
        "memory_limit": snapshot.number(metrics.MEMORY_LIMIT),
    }


def memory_used() -> int | None:
    """The memory that this process has, in bytes; None where the system has no `/proc`."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _model(snapshot: Snapshot) -> Values | None:
    sha256 = "" if snapshot.served is None else snapshot.served.sha256
    for labels, _ in _each(snapshot, metrics.MODEL):
        return {**dict(zip(metrics.MODEL.labels, labels, strict=True)), "sha256": sha256}
    return None


def _partitions(snapshot: Snapshot, now: float) -> Values:
    """All of them in order; the furthest behind, where there are too many. So no row changes its place."""
    lags = snapshot.numbers.get(metrics.LAG, {})
    held = sorted(_each(snapshot, metrics.STALL), key=lambda each: (each[0][0], int(each[0][1])))
    furthest = {labels for labels, _ in sorted(held, key=lambda each: -lags.get(each[0], 0))[:MOST_PARTITIONS]}
    rows = [
        {
            "partition": "/".join(labels),
            "lag": lags.get(labels),
            "oldest": max(0.0, now - taken_at) if isfinite(taken_at) else None,
        }
        for labels, taken_at in held
        if labels in furthest
    ]
    return {"count": len(held), "lag": sum(lags.values()), "shown": rows}


def _reasons(snapshot: Snapshot, date: float) -> list[Values]:
    return [
        {"code": each.code, "reason": each.reason, "source": each.source, "ago": max(0.0, date - each.date)}
        for each in sorted(snapshot.rejected, key=lambda each: -each.date)
    ]
