"""States are forgotten that no request used for so long, by the timestamps of the requests: a replay gives the same.

A request finds no state that is too old for it. A state that is too old for any request to come is dropped with the
next answer of its partition, and a tombstone goes with that to the changelog. A timestamp in the future counts as now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from worker.core.records import Array, Partition
from worker.state.layout import NO_TIME

# A state is dropped when the newest record of its partition is so much later than its TTL allows, ms: a record that
# comes late, with an older timestamp, finds it until then.
LATENESS = 60_000


class Expired(NamedTuple):
    """Keys that have no state as of the request with this offset; one before it that comes again may find it."""

    keys: Sequence[bytes]
    offset: int


class Expiry:
    """Owns the newest timestamp and the latest offset of each partition, and which keys are to be dropped.

    All times are in milliseconds.
    """

    def __init__(self, ttl: int, date: Callable[[], float]) -> None:
        """`date`: now, seconds since 1970."""
        self._ttl = ttl
        self._date = date
        self._newest: dict[Partition, int] = {}
        self._latest: dict[Partition, int] = {}
        self._old: dict[Partition, dict[bytes, None]] = {}  # in order

    def are_over(self, used: Array, now: Array) -> Array:
        """Which states that were used then are none any more for requests of now."""
        now = self.by_now(now)
        over: Array = (used != NO_TIME) & (now != NO_TIME) & (now - used > self._ttl)
        return over

    def by_now(self, times: Array) -> Array:
        """Times in the future count as now."""
        past: Array = np.minimum(times, self._date() * 1000).astype(np.int64)
        return past

    def came(self, partition: Partition, time: int, offset: int) -> None:
        """A request of the partition that has left, or one that was committed, has this timestamp and this offset."""
        time = int(min(time, self._date() * 1000))
        self._newest[partition] = max(time, self._newest.get(partition, NO_TIME))
        self._latest[partition] = max(offset, self._latest.get(partition, offset))

    @property
    def oldest(self) -> int:
        """A state that was used later is dropped in no partition."""
        return max(self._newest.values(), default=NO_TIME) - self._ttl - LATENESS

    def is_to_be_dropped(self, partition: Partition, used: int) -> bool:
        return used < self._newest.get(partition, NO_TIME) - self._ttl - LATENESS

    def is_old(self, partition: Partition, key: bytes) -> None:
        """Its state is to be dropped, unless a request uses it first."""
        self._old.setdefault(partition, {})[key] = None

    def take_old(self, partition: Partition) -> Expired:
        """The keys whose states were found to be old since the last call."""
        return Expired(list(self._old.pop(partition, ())), self._latest[partition])

    def rewind(self, partitions: Collection[Partition]) -> None:
        """These leave, or are read again from where records are older than the newest so far."""
        for partition in partitions:
            for known in (self._old, self._newest, self._latest):
                known.pop(partition, None)
