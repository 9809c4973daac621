"""The format of one key's state in an outside store: the source of its offset (a partition), then a changelog value.

    source, 8 bytes ─┬─ head of a changelog value, 24 bytes ─┬─ tensors
                     │                                       └─ none: the request in the head had the key forgotten

Other services read these values (`docs/state.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from worker.core.records import Array, Partition
from worker.state.layout import FORMAT, HEAD, Sieve, StateLayout
from worker.state.slabs import NO_OFFSET, StateRows

SOURCE = 8  # bytes
FORGOTTEN = 2  # a flag: the key has no state
_HEAD = np.dtype(HEAD)


class Change(NamedTuple):
    """A value to be written for a key. `is_forgotten`: the value says that the key has no state."""

    key: bytes
    value: bytes
    is_forgotten: bool


class ReadStates(NamedTuple):
    """Positions of keys with a state (`found`) and without (`missing`). `rows` are the states of the `found` ones.

    `offsets`: the requests that had the `missing` ones forgotten. Another partition's offset becomes `NO_OFFSET`.
    """

    found: list[int]
    rows: StateRows
    missing: list[int]
    offsets: list[int]


@lru_cache(4096)
def source_of(partition: Partition) -> bytes:
    """Returns the mark of an offset's partition. It is needed because keys move when a topic gets more partitions."""
    return sha256(str(partition).encode()).digest()[:SOURCE]


class OutsideValues:
    """Writes and reads the values of one layout."""

    def __init__(self, layout: StateLayout) -> None:
        self._layout = layout

    @staticmethod
    def written(partition: Partition, value: bytes) -> bytes:
        """Returns the store's value for a changelog value."""
        return source_of(partition) + value

    @staticmethod
    def forgotten(partition: Partition, head: bytes) -> bytes:
        """Returns the value that says that a request had the key forgotten; its state would have had this `head`."""
        return source_of(partition) + head[:1] + bytes([FORGOTTEN]) + head[2:]

    def read(self, partition: Partition, values: Sequence[bytes | None], sieve: Sieve) -> ReadStates:
        """Reads the store's values of some keys. A value that does not pass the sieve is no state."""
        ours, offsets = source_of(partition), dict[int, int]()
        there: dict[int, bytes] = {}
        for at, value in enumerate(values):
            if value is not None and self._is_forgotten(value):
                head = np.frombuffer(value[SOURCE:], _HEAD)[0]
                offsets[at] = int(head["offset"]) if value.startswith(ours) else NO_OFFSET
            elif value is not None and sieve.takes(value[SOURCE:]):
                there[at] = value
            else:
                offsets[at] = NO_OFFSET
        rows = StateRows.of_values(self._layout, self._layout.read([value[SOURCE:] for value in there.values()]))
        are_ours: Array = np.array([value.startswith(ours) for value in there.values()], np.bool_)
        rows = rows._replace(offsets=np.where(are_ours, rows.offsets, NO_OFFSET))
        return ReadStates(list(there), rows, list(offsets), list(offsets.values()))

    def _is_forgotten(self, value: bytes) -> bool:
        if len(value) != SOURCE + _HEAD.itemsize:
            return False
        head = np.frombuffer(value[SOURCE:], _HEAD)[0]
        is_ours = head["format"] == FORMAT and head["layout"] == self._layout.fingerprint
        return bool(is_ours and head["flags"] & FORGOTTEN)
