"""A column of tensors that lie in one array: nothing is cut for the records, and joined again for the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from worker.core.records import Array, Tensor


class Block(Sequence[Tensor]):
    """The tensors of n records of one row each, all of one shape: an array of shape (n, …) in one piece."""

    __slots__ = ("rows",)

    def __init__(self, rows: Array) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Tensor: ...
    @overload
    def __getitem__(self, at: slice) -> Block: ...
    def __getitem__(self, at: int | slice) -> Tensor | Block:
        if isinstance(at, slice):
            return Block(self.rows[at])
        row = self.rows[at : at + 1]
        texts: Tensor = row.ravel().tolist() if row.dtype.hasobject else row.tobytes()
        return texts

    def __iter__(self) -> Iterator[Tensor]:
        return (self[at] for at in range(len(self.rows)))
