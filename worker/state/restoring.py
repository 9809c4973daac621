"""What of a partition's changelog counts, and in which portions the loop takes it over.

Exactly once all of it does: what is not committed is not read. At least once a state may have been written by a request
whose offset was not committed, and that will come again: then the state before it counts, if the changelog still has
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.core.records import Partition
from worker.state.layout import FIRST, StateLayout


class RestoredRows(NamedTuple):
    """What the changelog has of some keys of one partition, in its order; `rows` None: these were forgotten.

    `is_last`: the partition's states are all there. The keys of the last are at least once: each had a state that was
    compacted away, and what is left was written by a request that will be read again.
    """

    partition: Partition
    attempt: int
    keys: Sequence[bytes]
    rows: NDArray[Any] | None
    is_last: bool = False


class Restoration:
    """One partition being restored. Owns what was written by requests that come again."""

    def __init__(self, partition: Partition, attempt: int, layout: StateLayout, committed: int | None) -> None:
        """`committed`: the group's next offset; None: what the changelog has counts, however far it goes."""
        self.partition = partition
        self._attempt = attempt
        self._layout = layout
        self._committed = committed
        self._ahead: dict[bytes, tuple[NDArray[Any], NDArray[Any]]] = {}  # by key the first of them, and the last

    def states(self, keys: Sequence[bytes], values: Sequence[bytes]) -> RestoredRows:
        """A portion of these. Raises `ValueError` for values of another layout."""
        rows = self._layout.read(values)
        if self._committed is None or not len(rows) or rows["offset"].max() < self._committed:
            return RestoredRows(self.partition, self._attempt, keys, rows)
        behind = np.flatnonzero(rows["offset"] < self._committed)
        for at in np.flatnonzero(rows["offset"] >= self._committed).tolist():
            first, _ = self._ahead.get(keys[at], (rows[at], rows[at]))
            self._ahead[keys[at]] = first, rows[at]
        return RestoredRows(self.partition, self._attempt, [keys[at] for at in behind.tolist()], rows[behind])

    def forgotten(self, keys: Sequence[bytes], offsets: Sequence[int]) -> RestoredRows:
        """A portion of keys that were forgotten, each with the offset of the request by which it was."""
        ours = [k for k, at in zip(keys, offsets, strict=True) if self._committed is None or at < self._committed]
        return RestoredRows(self.partition, self._attempt, ours, None)

    def last(self) -> RestoredRows:
        """The last portion: where the state before is gone, what is left."""
        lost = {key: last for key, (first, last) in self._ahead.items() if not first["flags"] & FIRST}
        rows = np.array(list(lost.values()), self._layout.dtype)
        return RestoredRows(self.partition, self._attempt, list(lost), rows, is_last=True)
