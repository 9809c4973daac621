"""How much may be taken: back-pressure as one decision.

Records that are taken and not settled are bounded, in number, rows and bytes. At the bound the worker takes no more. It
still glances at Kafka, because rebalance callbacks run only in a poll, and a poll may bring a record: a small reserve
is for these. When it is used up, fetching pauses until half of every bound is free. A pause is slow: the client throws
its prefetched records away (19 times slower when done for every batch, measured 2026).

The bound is for a broker that is away and for partitions that wait for a straggler. A worker that is merely behind
stays far below it, because the loop takes no more while full groups wait for a lane: the backlog stays in the client's
queue, where it costs no Python object and no repeat after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass

from worker.core.ordering.ledger import OffsetLedger

RESERVE = 32  # records taken beyond the bound, one per glance of 100 ms: a stall of 3 s before fetching pauses


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that is taken and not settled; `size` in bytes."""

    records: int = 20_000
    rows: int = 131_072
    size: int = 64 * 1024 * 1024


class Intake:
    """Reads the ledger. Owns the typical size of records, as learned, and the reserve."""

    def __init__(self, bounds: Bounds, ledger: OffsetLedger, chunk: int) -> None:
        """`chunk`: most records of one poll; far more than a batch would keep a finished lane waiting for its next."""
        self._chunk = chunk
        self._bounds = bounds
        self._ledger = ledger
        self._typical_size = max(1, bounds.size // 16)  # bytes of a record, until the first ones tell
        self._typical_rows = 1
        self._reserve_left = RESERVE
        self._is_pausing = False

    @property
    def is_full(self) -> bool:
        """Whether nothing may be taken: a bound is reached, or fetching still pauses because one was."""
        held, bounds = self._ledger, self._bounds
        return (
            self._is_pausing or held.records >= bounds.records or held.rows >= bounds.rows or held.size >= bounds.size
        )

    def room(self) -> int:
        """How many records may be taken now, judged by the size of the last ones; at least one unless full."""
        if self.is_full:
            return 0
        self._reserve_left = RESERVE
        held, bounds = self._ledger, self._bounds
        by_size = (bounds.size - held.size) // self._typical_size
        by_rows = (bounds.rows - held.rows) // self._typical_rows
        return max(1, min(self._chunk, bounds.records - held.records, by_size, by_rows))

    def took(self, records: int, rows: int, size: int) -> None:
        """So many records came, with so many rows and bytes together."""
        self._typical_size = max(1, size // records)
        self._typical_rows = max(1, rows // records)

    def took_from_reserve(self, records: int) -> None:
        """A glance brought records although nothing was asked for."""
        self._reserve_left -= records

    def should_pause(self) -> bool:
        """Whether fetching is to be paused: from the reserve's end until half of every bound is free."""
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
