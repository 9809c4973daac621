"""Waits for the schemas of some records, for a command: the loop of a worker never waits."""

from __future__ import annotations

import time
from collections.abc import Sequence

from worker.codecs.records.framed_values import FramedValues
from worker.core.failures import BadConfiguration
from worker.core.records import Record

PATIENCE = 30.0  # seconds
_GLANCE = 0.02


def await_schemas(framed: FramedValues, records: Sequence[Record], patience: float = PATIENCE) -> None:
    """Wait until all of these records can be read. Raises `BadConfiguration` if that takes too long."""
    until = time.monotonic() + patience
    while (waiting := framed.waiting(records)) is not None:
        if time.monotonic() >= until:
            raise BadConfiguration(f"WORKER_REGISTRY__URL: schema {waiting.schema} did not come: is the registry away?")
        time.sleep(_GLANCE)
