"""A reader outside the group looks whether a partition that stands can be parsed at all.

The worker's own consumer has the gates and pauses to heed besides (`source.py`); the rule is one (`core/stalls.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from worker.core.records import Partition
from worker.core.stalls import Stall, Stalls
from worker.kafka.client.statistics import read_consumer
from worker.kafka.consumer.batch_end import BatchQuestion, NewLooker, find_end

# One a second. Nothing but a closer look follows from a stall here, so it may come early.
LOOKS = 5


class Damage(NamedTuple):
    """Records that no client can parse, from the `first` offset to the `last`."""

    partition: Partition
    first: int
    last: int


class StallWatch:
    """Owns what the client's statistics said. Used by the thread that polls the client."""

    def __init__(self, new_looker: NewLooker, clock: Callable[[], float] = time.monotonic) -> None:
        self._new_looker = new_looker
        self._clock = clock
        self._stalls = Stalls(LOOKS)
        self._report: str | None = None
        self.standing: Mapping[Partition, Stall] = {}  # as last told

    @property
    def config(self) -> dict[str, Any]:
        """Settings of the client that is watched."""
        return {"statistics.interval.ms": 1_000, "stats_cb": self._hear}

    def _hear(self, report: str) -> None:
        """Keep it: what fails in a callback of the client costs the records that it was about to bring."""
        self._report = report

    def stalls(self) -> list[tuple[Partition, Stall]]:
        """Partitions that stand, each time the client has told anew."""
        report, self._report = self._report, None
        if report is None:
            return []
        self.standing = self._stalls.seen(read_consumer(report).reaches, self._clock())
        return list(self.standing.items())

    def damages(self, stalls: list[tuple[Partition, Stall]]) -> Iterator[Damage]:
        """Which of these are damaged there. Takes seconds, and more for thousands of records."""
        for partition, stall in stalls:
            if stall.is_due:
                last, _ = find_end(self._new_looker, BatchQuestion(partition, None, stall.offset))
                if last >= stall.offset:
                    yield Damage(partition, stall.offset, last)
