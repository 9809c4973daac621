"""Turns SIGTERM, SIGINT and SIGHUP into two flags that the loop reads once a turn.

A handler only counts: an exception raised in it would leave a Kafka call half done and drop the batch it had fetched
(measured 2026). The first signal asks to stop, the second to stop at once. A hang-up only asks to stop, however often
it comes: when a terminal closes, both kernel and shell send one, and a service manager may send one with SIGTERM.

Python runs no handler while the main thread is inside a native call, such as an inference. So the watchdog listens to a
pipe, into which the interpreter writes the number of each signal when it comes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """The operator's wish to stop. The signal handler writes it; the loop and the watchdog read it."""

    def __init__(self, pipe: int | None = None) -> None:
        """`pipe` is the end from which the numbers of signals are read, without waiting."""
        self._received = 0
        self._is_hung_up = False
        self._pipe = pipe
        self._was_sent = False

    @property
    def stop_asked(self) -> bool:
        return self._received > 0 or self._is_hung_up

    @property
    def hurry_asked(self) -> bool:
        return self._received > 1

    @property
    def stop_sent(self) -> bool:
        """True if `stop_asked` is true, or will be when the main thread runs its handlers. Only one thread may ask."""
        if self._pipe is not None:
            with suppress(BlockingIOError):
                self._was_sent |= any(number in STOPPING for number in os.read(self._pipe, 64))
        return self._was_sent or self.stop_asked

    def count(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._is_hung_up = True
        else:
            self._received += 1


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Listen for the signals that stop the worker, except an ignored SIGHUP (nohup); then restore the old handlers.

    Only the main thread may call it.
    """
    pipe, into = os.pipe()
    os.set_blocking(pipe, False)
    os.set_blocking(into, False)
    signals = StopSignals(pipe)
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    found = {n: signal.signal(n, signals.count) for n in STOPPING if not (is_nohup and n == signal.SIGHUP)}
    told = signal.set_wakeup_fd(into, warn_on_full_buffer=False)
    try:
        yield signals
    finally:
        signal.set_wakeup_fd(told)
        for number, handler in found.items():
            signal.signal(number, handler)
        os.close(into)
        os.close(pipe)


def unwind_when_told() -> None:
    """Let each of these signals unwind like Ctrl-C, except the ignored ones (nohup, a script's background)."""
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
