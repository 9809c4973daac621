"""The answers to `/healthz`, `/readyz`, `/startupz`, `/metrics`, `/v2`, the live page and its `/status`, as values.

They are made of the latest snapshot, on the server's threads, and touch no other state. A worker that answers is alive:
the watchdog ends one that hangs. An absent broker does not count: a restart would not bring it back, and all replicas
would restart at once.

`/v2` has the Open Inference Protocol's paths. Here a client learns the type that its rows must have, before it sends
any; requests come over Kafka alone. Counters and buckets of `/status` go out as they are: the page takes the difference
of two answers, so nothing is remembered between them. No payload, key or secret is among the values.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from functools import cached_property
from http import HTTPStatus
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from worker.core.addresses import Url, can_be_public, host_and_port
from worker.core.tensors.specs import TensorSpec
from worker.telemetry import metrics
from worker.telemetry.http_server import TEXT, Answer
from worker.telemetry.metrics import Metric, Snapshot
from worker.telemetry.usage import memory_used, processor_time
from worker.version import VERSION

if TYPE_CHECKING:
    from worker.settings import Settings
    from worker.telemetry.metrics_page import MetricsPage

Values = dict[str, Any]

ROOT = "/v2"
PLATFORM = "onnxruntime_onnx"  # as the protocol's servers call ONNX Runtime with an ONNX file
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
MOST_PARTITIONS = 100  # shown, the furthest behind; a few kilobytes a second
# Scrapers and load balancers may ask for these under any host name.
OPEN = frozenset({"/healthz", "/readyz", "/startupz", "/metrics", f"{ROOT}/health/live", f"{ROOT}/health/ready"})
_OTHER_NAME = (
    b"a name that this worker does not know may have been made to lead here by a page elsewhere; ask by an IP address, "
    b"by localhost or by a name without a dot, or name http://NAME/ in WORKER_TELEMETRY__REPLICAS\n"
)
_WHY = {
    "cut_off": "no broker can be reached; records wait in Kafka",
    "draining": "told to stop: what was taken is finished, and nothing new is",
}
_BOUNDS = (
    ("records", metrics.RECORDS_IN_FLIGHT, metrics.RECORDS_LIMIT),
    ("rows", metrics.ROWS_IN_FLIGHT, metrics.ROWS_LIMIT),
    ("bytes", metrics.BYTES_IN_FLIGHT, metrics.BYTES_LIMIT),
)


class Pages:
    """Answers each path. The code of `/metrics` is imported at its first request."""

    def __init__(
        self,
        latest: Callable[[], Snapshot],
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The host names of the replicas in `settings` are known: under these, all paths are answered."""
        self._names = {host_and_port(Url(replica).host)[0].lower() for replica in settings.telemetry.replicas}
        self._latest, self._clock, self._settings = latest, clock, settings
        self._began = clock()

    def answer(self, path: str, host: str = "") -> Answer:
        """Answer a request. `host` is its header `Host`; only programs that are no browser leave it out."""
        path, snapshot = path.partition("?")[0], self._latest()
        if path not in OPEN and not self._is_ours(host_and_port(host)[0].lower()):
            return HTTPStatus.MISDIRECTED_REQUEST, _OTHER_NAME, TEXT
        match path:
            case "/healthz" | "/v2/health/live":
                return _verdict(None)
            case "/readyz" | "/v2/health/ready":
                return _verdict(snapshot.unready)
            case "/startupz":
                return _verdict(snapshot.unready if snapshot.turned_at is None else None)
            case "/metrics":
                return HTTPStatus.OK, *self._metrics.render()
        if path == ROOT or path.startswith(f"{ROOT}/"):
            return _model_page(path, snapshot)
        return self._live_page(path, snapshot)

    def _is_ours(self, name: str) -> bool:
        """Guard against DNS rebinding: a page elsewhere can make its own name lead here, and read the answers."""
        return not can_be_public(name) or name in self._names

    @cached_property
    def _metrics(self) -> MetricsPage:
        from worker.telemetry.metrics_page import MetricsPage  # noqa: PLC0415  # 14 ms, and some workers have no scraper

        return MetricsPage(self._latest, self._clock)

    def _live_page(self, path: str, snapshot: Snapshot) -> Answer:
        has_page = self._settings.telemetry.page
        if has_page and path == "/status":
            return _json(HTTPStatus.OK, self._status(snapshot))
        if has_page and path in FILES:
            name, content_type = FILES[path]
            return HTTPStatus.OK, (Path(__file__).parent / "page" / name).read_bytes(), content_type
        known = f"{'/ ' if has_page else ''}/healthz /readyz /startupz /metrics {ROOT}\n"
        return HTTPStatus.NOT_FOUND, known.encode(), TEXT

    def _status(self, snapshot: Snapshot) -> Values:
        now, number, settings = self._clock(), snapshot.number, self._settings
        return {
            "at": snapshot.turned_at,
            "still": 0.0 if snapshot.turned_at is None else max(0.0, now - snapshot.turned_at),
            "phase": snapshot.phase,
            "why": _WHY.get(snapshot.phase, snapshot.unready),
            "worker": {
                "version": VERSION,
                "host": platform.node(),
                "process": os.getpid(),
                "up": now - self._began,
                "processor": processor_time(snapshot.host),
                "memory": memory_used(snapshot.host),
                "memory_limit": number(metrics.MEMORY_LIMIT),
            },
            "host": {
                "process": snapshot.host,
                "ended": sum(count for _, count in _each(snapshot, metrics.HOSTS_ENDED)),
                "away": _age(snapshot, metrics.HOST_AWAY, now),
            },
            "deployment": {
                "group": settings.kafka.group_id,
                "requests": settings.kafka.request_topics,
                "answers": settings.kafka.response_topic,
                "guarantee": settings.delivery.guarantee,
                "lanes": settings.batching.lanes,
                "has_state": bool(settings.state.tensors),
                "replicas": settings.telemetry.replicas,
            },
            "model": _model(snapshot),
            "linger": number(metrics.LINGER),
            "taken": number(metrics.RECORDS_TAKEN),
            "passed_over": number(metrics.RECORDS_PASSED_OVER),
            "settled": number(metrics.RECORDS_SETTLED),
            "latency": {
                "bounds": metrics.END_TO_END.bounds,
                "counts": snapshot.histogram(metrics.END_TO_END).counts,
            },
            "inference": snapshot.histogram(metrics.INFERENCE).total,
            "loop": number(metrics.LOOP),
            "running": _age(snapshot, metrics.RUNNING, now),
            "most_rows": number(metrics.MAX_BATCH_ROWS),
            "batches": [
                {"by": by, "batches": batches, "rows": number(metrics.BATCH_ROWS, by)}
                for (by,), batches in _each(snapshot, metrics.BATCHES)
            ],
            "held": [{"name": name, "now": number(held), "limit": number(limit)} for name, held, limit in _BOUNDS],
            "partitions": _partitions(snapshot, now),
            "rejections": [{"code": code, "count": count} for (code,), count in _each(snapshot, metrics.REJECTIONS)],
            "reasons": _reasons(snapshot, time.time()),
            "schemas": {
                "waiting": number(metrics.WAITING_FOR_SCHEMA),
                "away": _age(snapshot, metrics.REGISTRY_AWAY, now),
            },
            "state": {
                "keys": number(metrics.STATES),
                "bytes": number(metrics.STATE_BYTES),
                "waiting": number(metrics.WAITING_FOR_KEY),
                "restoring": number(metrics.RESTORING),
                "left": number(metrics.RESTORE_LEFT),
            },
        }


def _verdict(wrong: str | None) -> Answer:
    if wrong is None:
        return HTTPStatus.OK, b"ok\n", TEXT
    return HTTPStatus.SERVICE_UNAVAILABLE, f"{wrong}\n".encode(), TEXT


def _json(status: HTTPStatus, values: Values) -> Answer:
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return status, text.encode(), "application/json"


def _model_page(path: str, snapshot: Snapshot) -> Answer:
    """The answer to a path beneath `/v2` that is no probe."""
    if path == ROOT:
        return _json(HTTPStatus.OK, {"name": "inference-worker", "version": VERSION, "extensions": []})
    served, unready = snapshot.served, snapshot.unready
    if served is None:
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the model is not loaded yet"})
    at, version = ["models", served.name], ["versions", served.version]
    parts = [unquote(part) for part in path.split("/")[2:]]
    if parts in (at, at + version):
        devices = {labels[-1] for labels in snapshot.numbers.get(metrics.MODEL, {})}
        # Other servers put their own parameters here; ours says which file the model is.
        metadata = {
            "name": served.name,
            "versions": [served.version],
            "platform": "python" if "python" in devices else PLATFORM,
            "inputs": [_tensor(spec) for spec in served.inputs],
            "outputs": [_tensor(spec) for spec in served.outputs],
            "parameters": {"sha256": served.sha256},
        }
        return _json(HTTPStatus.OK, metadata)
    if parts in ([*at, "ready"], [*at, *version, "ready"]):
        status = HTTPStatus.OK if unready is None else HTTPStatus.SERVICE_UNAVAILABLE
        return _json(status, {"name": served.name, "ready": unready is None})
    there = "/".join(quote(part, safe="") for part in at + version)
    return _json(
        HTTPStatus.NOT_FOUND, {"error": f"{ROOT}/{there} and its /ready are served here; requests come over Kafka"}
    )


def _tensor(spec: TensorSpec) -> Values:
    """A tensor's metadata. In its shape -1 is a size that requests choose, the number of rows first."""
    shape = [-1, *(-1 if size is None else size for size in spec.dims)]
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape}


def _each(snapshot: Snapshot, metric: Metric) -> list[tuple[tuple[str, ...], float]]:
    return list(snapshot.numbers.get(metric, {}).items())


def _age(snapshot: Snapshot, metric: Metric, now: float) -> float:
    """The seconds of an age without labels."""
    return max(0.0, now - snapshot.numbers.get(metric, {}).get((), now))


def _model(snapshot: Snapshot) -> Values | None:
    sha256 = "" if snapshot.served is None else snapshot.served.sha256
    for labels, _ in _each(snapshot, metrics.MODEL):
        return {**dict(zip(metrics.MODEL.labels, labels, strict=True)), "sha256": sha256}
    return None


def _partitions(snapshot: Snapshot, now: float) -> Values:
    """The partitions in a fixed order, so that no row moves on the page. If there are too many, the furthest behind."""
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
        {
            "code": each.code,
            "count": each.times,
            "reason": each.reason,
            "source": each.source,
            "ago": max(0.0, date - each.date),
        }
        for each in sorted(snapshot.rejected, key=lambda each: -each.date)
    ]
