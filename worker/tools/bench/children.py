"""Processes of a measurement: spawned, deaf to Ctrl-C (their parent ends them), and ended when their parent ends.

A child's failure is raised in its parent, in one sentence. Owns the processes and the pipes to them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from typing import Any

from worker.core.failures import DeadlineMissed, Stop
from worker.tools.closing import Closing

# Spawned, never forked: a Kafka client does not outlive a fork.
_SPAWN = multiprocessing.get_context("spawn")
# For Python, its libraries, a model and a broker's first answer on a busy machine.
_START_S = 120.0
_END_S = 5.0


class Child(Closing):
    """One process that runs `act(pipe, *given)`. `receive` gets what it sends; `send` gives it an order."""

    def __init__(self, name: str, act: Callable[..., None], *given: Any) -> None:
        self._name = name
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_live, args=(theirs, act, given), name=name, daemon=True)
        # Inherited, so that the child is deaf from its first instruction on. The parent is, too, for an instant.
        found = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._process.start()
        finally:
            signal.signal(signal.SIGINT, found)
        theirs.close()

    def send(self, order: Any) -> None:
        """Raises `Stop` when the process is gone."""
        try:
            self._pipe.send(order)
        except OSError:
            self.check()
            raise

    @property
    def has_sent(self) -> bool:
        """Whether there is something to receive, or it has ended."""
        return self._pipe.poll()

    def receive(self, timeout: float = _START_S) -> Any:
        """Its next message. Raises the child's own `Stop`, or one when it has ended or sends nothing for so long."""
        if not self._pipe.poll(timeout):
            raise DeadlineMissed(f"{self._name} did not answer within {timeout:g} s")
        try:
            found = self._pipe.recv()
        except EOFError:
            self._process.join(_END_S)
            raise Stop(f"{self._name} ended with {self._process.exitcode}") from None
        if isinstance(found, Stop):
            raise found
        return found

    def check(self) -> None:
        """Raises `Stop` when it has ended, or is about to."""
        if not self._process.is_alive():
            while True:  # to its last message, and then to the end of the pipe
                self.receive(0.0)

    def close(self) -> None:
        """End it. It holds nothing that an orderly end would save."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _live(pipe: Pipe, act: Callable[..., None], given: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        act(pipe, *given)
    except Stop as stop:
        pipe.send(stop)
    except EOFError:  # no more orders: the parent has closed its end
        return


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(0)
