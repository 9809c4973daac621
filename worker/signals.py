"""SIGTERM and SIGINT as two flags that the loop reads once a turn.

A handler only counts: an exception raised in it would leave a Kafka call half done and drop the batch it had fetched
(measured). The first signal asks to stop, the second to stop at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopSignals:
    """What the operator asked for. Written by the signal handler, read by the loop and the watchdog."""

    def __init__(self) -> None:
        self._received = 0

    @property
    def stop_asked(self) -> bool:
        return self._received > 0

    @property
    def hurry_asked(self) -> bool:
        return self._received > 1

    def count(self, _signal: int, _frame: FrameType | None) -> None:
        """The handler."""
        self._received += 1


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Listens for SIGTERM and SIGINT; puts back the handlers it found."""
    signals = StopSignals()
    found = {number: signal.signal(number, signals.count) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in found.items():
            signal.signal(number, handler)
