"""Runs of several lanes on one device: side by side, or one alone.

What one run takes of the device's memory the others lack. A run for which there was none beside others is made again
alone, as it would be with a single lane: only what fails then says something of its batch. Owns who runs; runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class SharedDevice:
    """Used by all lanes."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._running = 0
        self._lone = 0  # those that run alone, or wait until they may

    @contextmanager
    def running(self, *, alone: bool) -> Iterator[None]:
        """Beside others a run begins at once, unless one is to be alone, which begins when all others have ended."""
        with self._changed:
            self._lone += alone
            self._changed.wait_for(lambda: not (self._running if alone else self._lone))
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._lone -= alone
                self._changed.notify_all()
