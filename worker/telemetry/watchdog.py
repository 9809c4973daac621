"""The watchdog ends the process when it hangs: Python cannot interrupt a native call that does not come back.

It watches the loop's heartbeat, the time a drain may take, and, where the model is in this process (HOST=thread), the
age of the inference that runs now. Many short inferences, as when a failed batch is halved again and again, are no
hang: each has its own age. Nothing unsettled has been committed, so lost requests are answered again. Owns its thread
and the right to end the process, nothing else.

Before the worker begins, it ends the process as soon as a stop is asked for: loading and warming a model may take
minutes, and nothing is held yet that must be given back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from types import TracebackType
from typing import Self

from worker.core.failures import DeadlineMissed

CHECK_EVERY = 0.5  # seconds
# A check that is so late means that the whole process stood still (SIGSTOP, a suspended machine), not the loop.
STOOD_STILL = 5.0
# Seconds to log the reason: the loop may hang in the writing of a log line.
REPORT_TIMEOUT = 1.0
# Seconds to leave the group: the client may hang. With a broker it took 0.5 s (measured 2026-11).
LEAVE_TIMEOUT = 1.5
_HUNG_RUN = "an inference has been running for {:.0f} s; if it is a slow one, raise WORKER_MODEL__RUN_TIMEOUT_S"


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """The most seconds for one turn of the loop, for one inference, and from a stop's request to the process's end.

    `run` is None where the model has a process of its own, which is ended in the place of this one.
    """

    turn: float
    run: float | None
    stop: float


@dataclass(frozen=True, slots=True)
class ForcedExit:
    """The verdict that the process must end now, with its exit code and the reason."""

    exit_code: int
    reason: str


class Watchdog:
    """Checks every half second, on its own thread while its context lasts."""

    def __init__(
        self,
        limits: TimeLimits,
        *,
        heartbeat: Callable[[], float | None],
        running_since: Callable[[], float | None],
        stop_asked: Callable[[], bool],
        report: Callable[[int, str], None],
        clock: Callable[[], float] = time.monotonic,
        end_process: Callable[[int], object] = os._exit,
    ) -> None:
        """The watchdog's thread calls all of these, except `report`: it gets exit code and reason on its own thread."""
        self._limits, self._clock = limits, clock
        self._heartbeat, self._running_since, self._stop_asked = heartbeat, running_since, stop_asked
        self._report, self._end_process = report, end_process
        self._checked_at = self._awake_since = clock()
        self._stopping_since: float | None = None
        self._leave: Callable[[], object] | None = None  # until the worker begins
        self._closed = Event()
        self._thread = Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop watching. Returns when no check can be under way."""
        self._closed.set()
        self._thread.join()

    def let_begin(self, leave: Callable[[], object]) -> None:
        """Let the worker itself stop when it is asked to, within its time limit.

        Before a hang is ended, `leave` is called on a thread of its own: it hands the worker's partitions to others.
        The worker must ask for a stop once more before it joins its group: one seen here may end the process at once.
        """
        self._leave = leave

    def check(self, now: float) -> ForcedExit | None:
        """How the process must end now; None while all is well."""
        if now - self._checked_at > STOOD_STILL:
            self._awake_since = now
        self._checked_at = now
        if self._stopping_since is None and self._stop_asked():
            self._stopping_since = now
        if self._stopping_since is not None and self._leave is None:
            return ForcedExit(0, "asked to before it began; nothing was taken")
        for since, longest, told in (
            (self._running_since(), self._limits.run, _HUNG_RUN),
            (self._heartbeat(), self._limits.turn, "the loop has not turned for {:.0f} s"),
            (self._stopping_since, self._limits.stop, "still not stopped {:.0f} s after being asked to"),
        ):
            age = 0.0 if since is None else now - max(since, self._awake_since)
            if longest is not None and age > longest:
                return ForcedExit(DeadlineMissed.exit_code, told.format(age))
        return None

    def _watch(self) -> None:
        while not self._closed.wait(CHECK_EVERY):
            forced = self.check(self._clock())
            if forced is not None:
                # A loop that hangs while it writes a line holds the log's lock.
                _on_other_thread(partial(self._report, forced.exit_code, forced.reason), REPORT_TIMEOUT)
                if self._leave is not None:
                    _on_other_thread(self._leave, LEAVE_TIMEOUT)
                self._end_process(forced.exit_code)
                return


def _on_other_thread(act: Callable[[], object], timeout: float) -> None:
    """Act on a thread that may be left behind, or not at all where the system gives no more threads."""
    acting = Thread(target=act, name="last-act", daemon=True)
    with suppress(RuntimeError):
        acting.start()
        acting.join(timeout)
