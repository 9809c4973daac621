"""Log lines, metrics, health and traces. Nothing else imports prometheus_client, opentelemetry or http."""

from worker.telemetry.events import WorkerEvents
from worker.telemetry.health import Deployment, HealthServer, try_address
from worker.telemetry.logs import configure, kafka_logger
from worker.telemetry.reasons import reason_of
from worker.telemetry.watchdog import TimeLimits, Watchdog
from worker.telemetry.watched_parts import WatchedParts

__all__ = [
    "Deployment",
    "HealthServer",
    "TimeLimits",
    "Watchdog",
    "WatchedParts",
    "WorkerEvents",
    "configure",
    "kafka_logger",
    "reason_of",
    "try_address",
]
