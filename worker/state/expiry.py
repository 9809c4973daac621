"""Forgets states that no request used for the TTL. Requests' timestamps are its clock, so a replay forgets as before.

A request does not find a state that is too old for it. When a state is too old for every later request, it is dropped
with its partition's next answer, and a tombstone goes to the changelog with it. Timestamps in the future count as now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from worker.core.records import Array, Partition
from worker.state.layout import NO_TIME

# Milliseconds that a state is kept beyond its TTL, by the newest timestamp of its partition: until then a late record
# with an older timestamp finds it.
LATENESS = 60_000


class Expiry:
    """Owns the newest timestamp and the latest offset of each partition, and the keys to be dropped.

    All times are in milliseconds.
    """

    def __init__(self, ttl: int, date: Callable[[], float]) -> None:
        """`date` returns the present time, in seconds since 1970."""
        self._ttl = ttl
        self._date = date
        self._newest: dict[Partition, int] = {}
        self._latest: dict[Partition, int] = {}
        self._old: dict[Partition, dict[bytes, None]] = {}  # in order

    def are_over(self, used: Array, now: Array) -> Array:
        """Tells which states, last used at `used`, are too old for requests with the timestamps `now`."""
        now = self.by_now(now)
        over: Array = (used != NO_TIME) & (now != NO_TIME) & (now - used > self._ttl)
        return over

    def by_now(self, times: Array) -> Array:
        """Returns the times, with those in the future replaced by the present time."""
        past: Array = np.minimum(times, self._date() * 1000).astype(np.int64)
        return past

    def came(self, partition: Partition, time: int, offset: int) -> None:
        """Note the timestamp and offset of a request that has been answered, or whose state was restored."""
        time = int(min(time, self._date() * 1000))
        self._newest[partition] = max(time, self._newest.get(partition, NO_TIME))
        self._latest[partition] = max(offset, self._latest.get(partition, offset))

    @property
    def oldest(self) -> int:
        """The time such that a state used later is not dropped in any partition."""
        return max(self._newest.values(), default=NO_TIME) - self._ttl - LATENESS

    def is_to_be_dropped(self, partition: Partition, used: int) -> bool:
        return used < self._newest.get(partition, NO_TIME) - self._ttl - LATENESS

    def is_old(self, partition: Partition, key: bytes) -> None:
        """Note that the key's state is to be dropped, unless a request uses it first."""
        self._old.setdefault(partition, {})[key] = None

    def take_old(self, partition: Partition) -> list[bytes]:
        """Returns the keys whose states were found to be old since the last call."""
        return list(self._old.pop(partition, ()))

    def latest(self, partition: Partition) -> int:
        """Returns the offset of the latest answered request: from it on an old key has no state.

        An earlier request that is read again may find it.
        """
        return self._latest[partition]

    def rewind(self, partitions: Collection[Partition]) -> None:
        """Forget what is known of partitions that leave, or that are read again from earlier records."""
        for partition in partitions:
            for known in (self._old, self._newest, self._latest):
                known.pop(partition, None)
