"""The parts that make a model of records from a model of tensors, and the values that they exchange.

    served inputs ── Preparation ──▶ columns ── rows of one shape ──▶ model ──▶ outputs ── Conclusion ──▶ fields

`record_model.py` puts them together. All of it runs on a lane of the model's process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from worker.core.failures import RowFault
from worker.core.records import Array, Value
from worker.core.tensors.specs import TensorSpec


class Column(NamedTuple):
    """One input of the model, for all rows of a batch.

    `rows` is one array of shape (rows, *dims), or an array of shape (*dims) for each row, where these differ. `pad`
    lengthens the first dimension of shorter rows; None: only rows of equal shape share a run.
    """

    rows: Array | Sequence[Array]
    pad: Value | None = None

    def of(self, rows: Sequence[int]) -> Column:
        """The column of these rows only."""
        own = self.rows
        return Column(own[rows] if isinstance(own, np.ndarray) else [own[row] for row in rows], self.pad)


class Prepared(NamedTuple):
    """The inputs made from a batch, by name, without the rows that have faults, and without those that are left.

    Rows are left that would take long: they are prepared in a later run, so that other batches go before them.
    """

    columns: Mapping[str, Column]
    faults: Mapping[int, RowFault] = {}
    left: Collection[int] = ()


class Preparation(Protocol):
    """Makes inputs of the model from what records hold: texts, pictures, or whole records."""

    @property
    def takes(self) -> Sequence[TensorSpec]:
        """The inputs that the worker feeds, in the place of the ones made."""

    @property
    def makes(self) -> Collection[str]:
        """The model's inputs that are made."""

    def prepare(self, feeds: Mapping[str, Array]) -> Prepared:
        """Make the inputs of these rows: of one at least, or a fault. The feeds are object arrays of shape (rows,)."""


class RowsFailed(Exception):
    """A conclusion cannot be drawn for some rows of a run, by their index."""

    def __init__(self, faults: Mapping[int, RowFault]) -> None:
        super().__init__("some rows failed")
        self.faults = faults


class Conclusion(Protocol):
    """Makes one field of the answer from the outputs of a run."""

    @property
    def spec(self) -> TensorSpec:
        """The field: its name, datatype and dimensions."""

    def conclude(self, outputs: Mapping[str, Array], feeds: Mapping[str, Array]) -> Array:
        """The field's values, one for each row. Raises `RowsFailed`.

        `feeds` has the model's inputs of this run, and the served inputs of its rows.
        """
