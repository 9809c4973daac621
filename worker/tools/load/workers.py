"""Replicas of the worker under load: started together, and asked what they have counted and used.

Owns their processes, from their start until it is closed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

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


class Workers:
    """Replicas of the worker, each an `inference-worker run` with an environment of its own."""

    def __init__(self, settings: Sequence[Mapping[str, str]], environ: Mapping[str, str], config: Path | None) -> None:
        """`settings`: by names without the prefix, one mapping for each replica."""
        self._stack = ExitStack()
        self._replicas = [self._stack.enter_context(Replica(own, environ, config=config)) for own in settings]

    def wait_until_ready(self) -> None:
        """Until each has its model and is in the group. Raises `Stop`."""
        for replica in self._replicas:
            replica.wait_until_ready()

    def check(self) -> None:
        """Raises `Stop` when one is gone."""
        for replica in self._replicas:
            replica.check()

    def usage(self) -> Usage | None:
        return usage_of(replica.pid for replica in self._replicas)

    def batched(self) -> Sequence[Batched]:
        """Of each replica. Raises `Stop` when one does not answer."""
        return [_batched(replica) for replica in self._replicas]

    def stop(self) -> None:
        """In good order. Raises `Stop` unless each exits with 0."""
        for replica in self._replicas:
            replica.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


def _batched(replica: Replica) -> Batched:
    asked = time.monotonic()
    counts = replica.all_counts()
    age = sum(counts["loop_heartbeat_age_seconds"].values())
    instant = (asked + time.monotonic()) / 2 - age
    return Batched(instant, *(sum(counts[name].values()) for name in _COUNTED))
