"""`inference-worker` whose replay kills itself at a given point, as by `kill -9`.

    python -m tests.kafka.dying_replay POINT dead-letters replay ...

Its portions are small, so that there are many.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from confluent_kafka import Consumer, Producer

from worker import cli
from worker.tools.dead_letters import replay
from worker.tools.kafka import publisher

PORTION = 40
# Points of the second portion.
POINTS = ("after one record", "before the flush", "after the flush", "after the commit")


class DyingProducer(Producer):
    """Dies at `point`, in the second portion."""

    point = ""
    produced = 0

    def produce(self, *args: Any, **kwargs: Any) -> None:
        super().produce(*args, **kwargs)
        DyingProducer.produced += 1
        if self.produced == PORTION + 1:
            die_at("after one record")

    def flush(self, *args: Any) -> int:
        if self.produced == 2 * PORTION:
            die_at("before the flush")
        left: int = super().flush(*args)
        if self.produced == 2 * PORTION:
            die_at("after the flush")
        return left


class DyingConsumer(Consumer):
    """Dies when the second portion is committed."""

    def commit(self, *args: Any, **kwargs: Any) -> Any:
        done = super().commit(*args, **kwargs)
        if DyingProducer.produced == 2 * PORTION:
            die_at("after the commit")
        return done


def die_at(point: str) -> None:
    """Die at this point as if the kernel had run out of memory: nothing is put in order."""
    if DyingProducer.point == point:
        os.kill(os.getpid(), signal.SIGKILL)


def main(argv: list[str]) -> None:
    DyingProducer.point = argv[0]
    publisher.Producer = DyingProducer  # type: ignore[attr-defined]  # what they import, replaced
    replay.Consumer = DyingConsumer  # type: ignore[attr-defined]  # likewise
    replay.PORTION = PORTION
    cli.app(argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
