"""A model that is always run with one number of rows, given any number up to that.

It was exported for that number, or another number costs more than the rows that are added do. Missing rows are copies
of the last one: a value that the model has to answer anyway. The outputs are cut back, so that no caller sees a padded
row. A run takes as long as a full one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnxruntime as ort

from worker.core.failures import RowsLost
from worker.core.records import Array
from worker.inference.declared_signature import Declared
from worker.inference.device import CUDA, TENSORRT
from worker.settings import ModelSettings

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
PLANNED_ANEW = "on CUDA a convolution is planned anew for a batch of other rows than the one before it"


class Padding(NamedTuple):
    """The rows that every run has, padded ones among them, and why. `is_exported`: the model takes no other number."""

    rows: int
    why: str
    is_exported: bool = False

    def padded(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The feeds with exactly so many rows. Raises `ValueError` for more."""
        return {name: self._padded(name, array) for name, array in feeds.items()}

    def cut(self, outputs: Sequence[Array], names: Sequence[str], rows: int) -> Sequence[Array]:
        """The first `rows` rows of each output. Raises `RowsLost` for one that has others than those of a batch.

        A full batch is not cut, and its outputs are as unchecked as those of any model.
        """
        if rows == self.rows:
            return outputs
        for name, output in zip(names, outputs, strict=True):
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


def padding_of(
    session: ort.InferenceSession,
    operators: frozenset[str],
    declared: Declared,
    settings: ModelSettings,
    max_batch_size: int,
    max_batch_bytes: int | None,
) -> Padding | None:
    """The only number of rows that the model, which has these operators, is to run with, if there is one.

    ONNX Runtime keeps one plan for each convolution on CUDA, that of the last run. A ResNet-50 in FP16 took 0.25 s in
    each run of another number of rows, warmed up or not, and 8 ms at 64 rows else (H200, ONNX Runtime 1.31, 2026-11).
    TensorRT plans by itself.
    """
    if declared.fixed_rows is not None:
        return Padding(declared.fixed_rows, "the model was exported for so many rows", is_exported=True)
    sizes = [spec.row_bytes for spec in declared.signature.inputs]
    row_bytes = 0 if declared.signature.axes or None in sizes else sum(size or 0 for size in sizes)
    providers = session.get_providers()
    plans_anew = operators & CONVOLUTIONS and CUDA in providers and TENSORRT not in providers
    if settings.full_batches == "never" or not row_bytes or not plans_anew:
        return None
    rows = max_batch_size if max_batch_bytes is None else min(max_batch_size, max_batch_bytes // row_bytes)
    return Padding(rows, PLANNED_ANEW) if rows > 1 else None
