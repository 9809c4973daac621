"""`inference-worker` with a replay that kills itself at a point that it is told, as by `kill -9`.

    python -m tests.kafka.dying_replay POINT dead-letters replay ...

Its transactions hold few records, so that there are many, and its membership of the group is forgotten soon.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, NoReturn

from confluent_kafka import Producer

from worker import cli
from worker.tools.dead_letters import replay, replay_group

RECORDS = 40  # of one transaction
SESSION_MS = 1500
# Points of the second transaction, or of the start.
POINTS = (
    "before init",
    "after init",
    "before begin",
    "after begin",
    "after one record",
    "after all records",
    "after all arrived",
    "after offsets",
    "in commit",
    "after commit",
)
NEVER = "never"


class DyingProducer(Producer):
    """Dies at `point`."""

    point = NEVER

    def init_transactions(self, *args: Any) -> None:
        self._die_at("before init")
        super().init_transactions(*args)
        self._transactions = 0
        self._produced = 0
        self._die_at("after init")

    def begin_transaction(self) -> None:
        self._transactions += 1
        self._die_in_second("before begin")
        super().begin_transaction()
        self._die_in_second("after begin")

    def produce(self, *args: Any, **kwargs: Any) -> None:
        super().produce(*args, **kwargs)
        self._die_in_second("after one record")

    def send_offsets_to_transaction(self, *args: Any) -> None:
        self._die_in_second("after all records")
        self.flush(10)
        self._die_in_second("after all arrived")
        super().send_offsets_to_transaction(*args)
        self._die_in_second("after offsets")

    def commit_transaction(self, *args: Any) -> None:
        if self._transactions == 2 and self.point == "in commit":
            threading.Timer(0.002, kill).start()
        super().commit_transaction(*args)
        self._die_in_second("after commit")

    def _die_in_second(self, point: str) -> None:
        if self._transactions == 2:
            self._die_at(point)

    def _die_at(self, point: str) -> None:
        if self.point == point:
            kill()


def kill() -> NoReturn:
    """As the kernel does when memory runs out: nothing is put in order."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody outlives that")


def main(argv: list[str]) -> None:
    assert argv[0] in (*POINTS, NEVER), argv[0]
    DyingProducer.point = argv[0]
    replay_group.Producer = DyingProducer  # type: ignore[attr-defined]  # what it imports, replaced
    replay_group._MEMBERSHIP |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300}
    replay_group._WAIT_FOR_OTHERS = 2 * SESSION_MS / 1000
    replay.MOST_RECORDS = RECORDS
    cli.app(argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
