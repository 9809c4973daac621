"""Records among the states that are none of this model: any client with the right to write may have left them there.

| what lies there | what becomes of it |
|---|---|
| a state of this model | it counts |
| states of another model, and none of this | the worker does not begin: its settings do not fit |
| anything else | it is passed over, named and counted; one record does not end a group |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from worker.state.layout import StateLayout

ANOTHERS = "a state of other tensors than this model's"


class PassedOver(NamedTuple):
    """How many `records`; `first`: where the first of them lies, as far as that is known."""

    records: int
    first: int | None


class Sieve:
    """Owns what was passed over of one source of states."""

    def __init__(self, layout: StateLayout, *, has_ours: bool = False) -> None:
        """`has_ours`: states of this model were found there before."""
        self._layout = layout
        self._has_ours = has_ours
        self._has_anothers = False
        self.passed_over = PassedOver(0, None)

    def rows(
        self, keys: Sequence[bytes], values: Sequence[bytes], offset_of: Callable[[int], int | None]
    ) -> tuple[Sequence[bytes], NDArray[Any]]:
        """The keys of those that are states of this model, and their rows. `offset_of` is asked where others lie."""
        try:
            rows = self._layout.read(values)
        except ValueError:
            ours = [at for at, value in enumerate(values) if self.takes(value, offset_of(at))]
            keys, rows = [keys[at] for at in ours], self._layout.read([values[at] for at in ours])
        self._has_ours |= bool(len(rows))
        return keys, rows

    def takes(self, value: bytes, offset: int | None) -> bool:
        """Whether this is a state of this model; what is none is passed over."""
        if self._layout.is_ours(value):
            self._has_ours = True
            return True
        self._has_anothers |= self._layout.is_anothers(value)
        records, first = self.passed_over
        self.passed_over = PassedOver(records + 1, first if records else offset)
        return False

    def check(self) -> None:
        """Raises `ValueError` where all states are another model's."""
        if self._has_anothers and not self._has_ours:
            raise ValueError(ANOTHERS)
