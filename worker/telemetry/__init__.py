"""What an operator sees: log lines, metrics, health. Nothing else imports structlog, prometheus_client or http."""

from worker.telemetry.events import WorkerEvents
from worker.telemetry.health import HealthServer, Patience, try_address
from worker.telemetry.logs import configure, kafka_logger
from worker.telemetry.watchdog import Limits, Watchdog

__all__ = ["HealthServer", "Limits", "Patience", "Watchdog", "WorkerEvents", "configure", "kafka_logger", "try_address"]
