"""What a person at a terminal is told besides the log: that the worker is ready, and how it goes.

Plain lines and no status line that is drawn over: what scrolled by can be read and copied later, whatever else writes
to the terminal, and no start waits for a library that draws. A thread reads the snapshot that the loop publishes
anyway, so nothing is counted twice and the loop waits for nothing. While there is nothing to do, nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event, Thread

from worker.telemetry.metrics.metric_values import Snapshot
from worker.telemetry.rates import HEADS, rates

EVERY = 5.0  # seconds between two rows: a minute of them fits a small terminal
LOOK_EVERY = 0.1  # seconds, until the worker is ready
ROWS_BELOW_HEADS = 12  # a minute of rows: the heads are in sight then


class TerminalLines:
    """What to say of one snapshot after the other. `page` is the live page's address, if there is one."""

    def __init__(self, page: str | None) -> None:
        self._page = page
        self._told: Snapshot | None = None  # since the worker is ready: up to where rows were said
        self._rows = 0  # below the last heads

    @property
    def is_ready(self) -> bool:
        """Whether the worker was ready once."""
        return self._told is not None

    def of(self, snapshot: Snapshot) -> Iterator[str]:
        if self._told is None:
            if snapshot.unready is None and snapshot.turned_at is not None:
                self._told = snapshot
                yield f"ready until Ctrl-C{f'; live page: {self._page}' if self._page else ''}"
            return
        if (found := rates(self._told, snapshot)) is None:
            return
        self._told = snapshot
        if found.is_idle:
            self._rows = 0
            return
        if self._rows % ROWS_BELOW_HEADS == 0:
            yield HEADS
        self._rows += 1
        yield found.row


class TerminalReport:
    """Says it from its making until `close`. Owns the thread."""

    def __init__(self, latest: Callable[[], Snapshot], say: Callable[[str], None], page: str | None) -> None:
        self._latest = latest
        self._say = say
        self._lines = TerminalLines(page)
        self._ended = Event()
        self._thread = Thread(target=self._run, name="report", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(EVERY if self._lines.is_ready else LOOK_EVERY):
            for line in self._lines.of(self._latest()):
                self._say(line)

    def close(self) -> None:
        """It may be in the middle of a line, in a terminal that was stopped (Ctrl-S): that is not waited for."""
        self._ended.set()
        self._thread.join(LOOK_EVERY)
