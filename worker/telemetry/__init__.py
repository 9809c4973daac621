"""Log lines, metrics, health and traces. Nothing else imports structlog, prometheus_client, opentelemetry or http."""

import sys

# structlog loads rich, where it is installed, for tracebacks that are never printed here: 40 ms of every start (2026).
if "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # that is how an import is made to fail
    import structlog  # noqa: F401

    del sys.modules["rich"]

from worker.telemetry.events import WorkerEvents
from worker.telemetry.http_server import HttpServer
from worker.telemetry.logs import configure, kafka_logger, reason_of
from worker.telemetry.pages import Pages
from worker.telemetry.watchdog import TimeLimits, Watchdog
from worker.telemetry.watched_parts import WatchedParts

__all__ = [
    "HttpServer",
    "Pages",
    "TimeLimits",
    "Watchdog",
    "WatchedParts",
    "WorkerEvents",
    "configure",
    "kafka_logger",
    "reason_of",
]
