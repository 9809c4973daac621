"""Finds partitions that stand still although their logs go on: the only sign of a fault that no client reports.

A batch that the client cannot parse gives no record and no error (librdkafka#5581). An open transaction of another
producer holds back all records after it. In both cases the position stands, the log ends beyond it, and the broker
answers. If a broker is away, slow or without a leader, it does not answer, and nothing is counted. An idle partition
stands at its end. While a partition is paused or the client's queue for it is full, a look does not count, and ends no
stall: under load that is nearly always so. Pure: takes the client's figures once a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from worker.core.records import Partition

# This many looks at one position make a stall, if the broker answered between them: 30 s or more. The broker answers a
# fetch at once if it finds something, else after 0.5 s, so 5 would do for a good network. But with a quota of 150 kB/s
# no record came for 12 s and 15 looks, because a broker answers without records then (measured 2026-11); and
# transactions of a few seconds are usual.
LOOKS = 30


class Reach(NamedTuple):
    """How far a partition is read: to `position`. It may be read up to `stable`, and its log ends at `end`.

    `is_fetched`: nothing keeps the client from fetching it. `answers` counts the answers of its broker so far.
    """

    position: int
    stable: int
    end: int
    is_fetched: bool
    answers: int


class Stall(NamedTuple):
    """A partition that stands at `offset`. `is_due`: it is time again to look into the cause."""

    offset: int
    since: float
    is_transaction: bool  # another producer's transaction is open: nothing may be read from here on
    is_due: bool = False

    @property
    def reason(self) -> str:
        """The cause, as far as it can be known, and what to do."""
        if self.is_transaction:
            return (
                f"a transaction of another producer is open since offset {self.offset}: it ends by itself after that "
                "producer's transaction.timeout.ms; kafka-transactions.sh find-hanging names one that does not"
            )
        return (
            f"the broker answers, and gives no record from offset {self.offset} on: a batch that is damaged on its "
            "disk, or larger than its quotas let through, if it lasts"
        )


@dataclass(slots=True)
class _Standing:
    position: int
    answers: int
    since: float
    looks: int = 0
    is_counted: bool = False  # the last look counted


class Stalls:
    """Remembers where each partition stands. One thread uses it."""

    def __init__(self, looks: int = LOOKS) -> None:
        self._looks = looks
        self._standing: dict[Partition, _Standing] = {}

    def seen(self, reaches: Mapping[Partition, Reach], now: float) -> Mapping[Partition, Stall]:
        """The partitions that stand. `reaches` holds every partition of ours; any other partition is forgotten."""
        self._standing = {
            partition: self._next(self._standing.get(partition), reach, now)
            for partition, reach in reaches.items()
            if reach.position < reach.end
        }
        return {
            partition: self._stall(at, is_transaction=reaches[partition].stable <= at.position)
            for partition, at in self._standing.items()
            if at.looks >= self._looks
        }

    def _stall(self, at: _Standing, *, is_transaction: bool) -> Stall:
        is_due = at.is_counted and not is_transaction and at.looks % self._looks == 0
        return Stall(at.position, at.since, is_transaction, is_due)

    @staticmethod
    def _next(before: _Standing | None, reach: Reach, now: float) -> _Standing:
        if before is None or before.position != reach.position:
            return _Standing(reach.position, reach.answers, now)
        before.is_counted = reach.is_fetched and reach.answers > before.answers
        before.looks += before.is_counted
        before.answers = reach.answers
        return before
