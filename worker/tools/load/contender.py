"""What answers a load: processes side by side, workers or loops written by hand. Asked what they counted and used.

Owns the processes, from their start until it is closed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple, Protocol

from worker.tools.closing import Closing
from worker.tools.load.replica import Replica
from worker.tools.load.usage import Usage, usage_of

_COUNTED = ("batches_total", "batch_rows_total", "inference_seconds_sum")


class Batched(NamedTuple):
    """What a replica had counted at an `instant`: batches closed, rows in them, and seconds of inference.

    It shows its counts a few times a second, so the instant lies before that of the question.
    """

    instant: float
    batches: float
    rows: float
    busy_seconds: float


class Answering(Protocol):
    """One process. Whatever it finds wrong it raises as a `Stop`."""

    @property
    def pid(self) -> int: ...
    def wait_until_ready(self) -> None: ...
    def check(self) -> None: ...
    def stop(self) -> None: ...


class Contender(Closing):
    """Several processes that answer the same requests."""

    def __init__(self, processes: Iterable[AbstractContextManager[Answering]]) -> None:
        """Each is started when it is taken from `processes`."""
        self._stack = ExitStack()
        self._processes = [self._stack.enter_context(process) for process in processes]

    def wait_until_ready(self) -> None:
        """Until each has its model and its partitions. Raises `Stop`."""
        for process in self._processes:
            process.wait_until_ready()

    def check(self) -> None:
        """Raises `Stop` when one is gone."""
        for process in self._processes:
            process.check()

    def usage(self) -> Usage | None:
        return usage_of(process.pid for process in self._processes)

    def batched(self) -> Sequence[Batched]:
        """Of each worker; a loop knows no batches. Raises `Stop` when one does not answer."""
        return [_batched(process) for process in self._processes if isinstance(process, Replica)]

    def stop(self) -> None:
        """In good order. Raises `Stop` unless each ends so."""
        for process in self._processes:
            process.stop()

    def close(self) -> None:
        self._stack.close()


def _batched(replica: Replica) -> Batched:
    asked = time.monotonic()
    counts = replica.all_counts()
    age = sum(counts["loop_heartbeat_age_seconds"].values())
    instant = (asked + time.monotonic()) / 2 - age
    return Batched(instant, *(sum(counts[name].values()) for name in _COUNTED))
