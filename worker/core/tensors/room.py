"""The memory into which the tensors of a batch are stacked: this process's own, or shared with the model's host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from worker.core.records import Array, Tensor

ALIGNMENT = 64  # bytes: kernels may load whole vectors


class Room(Protocol):
    """The memory of one batch."""

    def join(self, tensors: Sequence[Tensor]) -> Array | bytes | memoryview:
        """The bytes of these tensors of numbers, one after the other; perhaps a view of a single one."""

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An array without content."""


Rooms = Callable[[int], Room]  # gives room for so many bytes


class OwnRoom:
    """Room in this process's memory, as much as it takes."""

    def join(self, tensors: Sequence[Tensor]) -> bytes | memoryview:
        return tensors[0] if len(tensors) == 1 else b"".join(tensors)  # type: ignore[arg-type, return-value]  # no texts

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)


_OWN = OwnRoom()


def own_room(_: int) -> OwnRoom:
    """Room in this process's memory."""
    return _OWN
