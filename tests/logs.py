"""The lines of our own log, as a list of facts with their fields."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from worker.telemetry.logs import OURS


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = record.__dict__["fields"]
        self.lines.append({"event": record.getMessage(), "log_level": record.levelname.lower(), **fields})


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """Collect our log's lines of all levels while the block runs. Other loggers do not see them."""
    logger, kept = logging.getLogger(OURS), _Kept()
    level, logger.propagate = logger.level, False
    logger.addHandler(kept)
    logger.setLevel(logging.DEBUG)
    try:
        yield kept.lines
    finally:
        logger.removeHandler(kept)
        logger.setLevel(level)
        logger.propagate = True
