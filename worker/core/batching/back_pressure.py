"""Decides how much may be taken: all back-pressure is this one decision.

Records that are taken and not settled are bounded, in number, rows and bytes. At the bound the worker takes no more. It
still polls Kafka now and then, because rebalance callbacks run only in a poll. Such a poll may bring a record, so there
is a small reserve. When that is used up, fetching pauses until half of every bound is free. A pause is slow, because
the client throws its prefetched records away (19 times slower when done for every batch, measured 2026).

The bound is for a broker that is away and for partitions that wait for a slow request. A worker that is only behind
stays far below it, because the loop takes no more while full groups wait for a lane. So the backlog stays in the
client's queue, where it costs no Python object and no repeat after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass

from worker.core.ordering.ledger import OffsetLedger

RESERVE = 32  # records taken beyond the bound, one per poll each 100 ms: fetching pauses after 3 s at the bound


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most records, rows and bytes (`size`) that are taken and not settled."""

    records: int = 20_000
    rows: int = 131_072
    size: int = 64 * 1024 * 1024


class Intake:
    """Decides from the ledger how much may be taken. Owns the typical size of records, as learned, and the reserve."""

    def __init__(self, bounds: Bounds, ledger: OffsetLedger, most_polled: int) -> None:
        """`most_polled`: records of one poll."""
        self._most_polled = most_polled
        self._bounds = bounds
        self._ledger = ledger
        self._typical_size = max(1, bounds.size // 16)  # bytes of a record, until the first ones tell
        self._typical_rows = 1
        self._reserve_left = RESERVE
        self._is_pausing = False

    @property
    def is_full(self) -> bool:
        """True if nothing may be taken: a bound is reached, or fetching still pauses because one was."""
        held, bounds = self._ledger, self._bounds
        return (
            self._is_pausing or held.records >= bounds.records or held.rows >= bounds.rows or held.size >= bounds.size
        )

    def room(self) -> int:
        """How many records may be taken now, judged by the size of the last records; at least one unless full."""
        if self.is_full:
            return 0
        self._reserve_left = RESERVE
        held, bounds = self._ledger, self._bounds
        by_size = (bounds.size - held.size) // self._typical_size
        by_rows = (bounds.rows - held.rows) // self._typical_rows
        return max(1, min(self._most_polled, bounds.records - held.records, by_size, by_rows))

    def took(self, records: int, rows: int, size: int) -> None:
        """Learn the typical record from the last ones: their number, and their rows and bytes together."""
        self._typical_size = max(1, size // records)
        self._typical_rows = max(1, rows // records)

    def took_from_reserve(self, records: int) -> None:
        """Count records that a poll brought although nothing may be taken."""
        self._reserve_left -= records

    def should_pause(self) -> bool:
        """True if fetching must pause: from the end of the reserve until half of every bound is free."""
        if self._is_pausing:
            held, bounds = self._ledger, self._bounds
            self._is_pausing = (
                2 * held.records > bounds.records or 2 * held.rows > bounds.rows or 2 * held.size > bounds.size
            )
        else:
            self._is_pausing = self._reserve_left <= 0
        if not self._is_pausing and self._reserve_left <= 0:
            self._reserve_left = RESERVE
        return self._is_pausing
