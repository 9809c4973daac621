"""A model that is always run with one number of rows, given any number up to that.

Because it was exported for that number, or because another number costs more than the rows that are added do.

Missing rows are copies of the last one: a value that the model has to answer anyway. The outputs are cut back, so that
no caller sees a padded row. A run takes as long as a full one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worker.core.failures import RowsLost
from worker.core.records import Array


class Padding(NamedTuple):
    """The rows that every run has, padded ones among them, and why. `is_exported`: the model takes no other number."""

    rows: int
    why: str
    is_exported: bool = False


class FixedBatch:
    """Pads feeds to `rows` rows, and cuts the outputs of these names. Several lanes use it at once."""

    def __init__(self, rows: int, output_names: Sequence[str]) -> None:
        self.rows = rows
        self._output_names = output_names

    def padded(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """The feeds with exactly so many rows. Raises `ValueError` for more."""
        return {name: self._padded(name, array) for name, array in feeds.items()}

    def cut(self, outputs: Sequence[Array], rows: int) -> Sequence[Array]:
        """The first `rows` rows of each output. Raises `RowsLost` for one that has others than those of a batch.

        Of a full batch nothing is cut, and the outputs are as unchecked as those of any model.
        """
        if rows == self.rows:
            return outputs
        for name, output in zip(self._output_names, outputs, strict=True):
            if output.shape[:1] != (self.rows,):
                raise RowsLost(name, self.rows, output.shape)
        return [output[:rows] for output in outputs]

    def _padded(self, name: str, array: Array) -> Array:
        rows = len(array)
        if rows == self.rows:
            return array
        if rows > self.rows:
            raise ValueError(f"input {name}: {rows} rows, and a run has {self.rows}")
        padded = np.empty((self.rows, *array.shape[1:]), array.dtype)
        padded[:rows], padded[rows:] = array, array[-1:]
        return padded
