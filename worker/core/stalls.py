"""Partitions that stand still although their logs go on: the one sign of a fault that a client does not report.

A batch that the client cannot parse gives no record and no error (librdkafka#5581), and an open transaction of another
producer holds back all behind it. Both times the position stands, the log ends beyond it, and the broker answers. A
broker that is away, slow or without a leader does not answer, so it counts for nothing; an idle partition stands at its
end. A partition that is paused, or that the client may not fetch because its queue is full, is looked at again later:
under load that is nearly always so, and ends no stall. Pure: takes the client's figures once a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from worker.core.records import Partition

# So many looks at one position, each with an answer of the broker's since the one before, make a stall: 30 s or more. A
# fetch that finds something is answered at once and one that finds nothing after 0.5 s, so 5 would do for a good
# network. But with a quota of 150 kB/s no record came for 12 s and 15 looks, for a broker answers without records then
# (measured 2026-11); and transactions of a few seconds are usual.
LOOKS = 30


class Reach(NamedTuple):
    """How far a partition is read. All below `position` came; up to `stable` it may be read, and its log is `end` long.

    `is_fetched`: nothing keeps the client from it. `answers` counts the answers of the partition's broker so far.
    """

    position: int
    stable: int
    end: int
    is_fetched: bool
    answers: int


class Stall(NamedTuple):
    """A partition that stands at `offset`. `is_due`: time to look into it, as every so often."""

    offset: int
    since: float
    is_transaction: bool  # of another producer, open: nothing may be read from here on
    is_due: bool = False

    @property
    def reason(self) -> str:
        """Why it stands, as far as can be known, and what to do."""
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
    is_counted: bool = False  # the last look


class Stalls:
    """Remembers where each partition stands. One thread uses it."""

    def __init__(self, looks: int = LOOKS) -> None:
        self._looks = looks
        self._standing: dict[Partition, _Standing] = {}

    def seen(self, reaches: Mapping[Partition, Reach], now: float) -> Mapping[Partition, Stall]:
        """The partitions that stand. `reaches` are of all that are ours; one that is not among them is forgotten."""
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
