"""The first runs of a model, before any request. They show which rows it takes, and that it returns a row for each.

Raises `BadConfiguration` with the cure where the model fails. Owns nothing; the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from worker.core.failures import BadConfiguration
from worker.core.records import Array, Value
from worker.core.tensors.axes import blank_lengths
from worker.core.tensors.buckets import Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.inference.onnxruntime_errors import is_out_of_memory, readable
from worker.inference.session import RUN_ERRORS, WrongOutput

# Sizes tried for dynamic dimensions at warm-up, until the model runs on one. 16: a short text, inside every table of
# positions. 64: an image whose side halves five times. 224: the image classifiers' usual side. 1: the last resort.
TRIED_DIMENSIONS = (16, 64, 224, 1)
# The warm-up always runs so many rows, whatever MAX_BATCH_SIZE is.
ALWAYS_RUN = 2


Feeds = Mapping[str, Array]
Lengths = Mapping[Spot, int]


class WarmUpRows(NamedTuple):
    """Rows that are tried: an array of shape (rows, *dims) for each input, repeated where more rows are wanted.

    Either the operator's example, or one row made of a single number.
    """

    arrays: Feeds
    is_example: bool = False

    @property
    def rows(self) -> int:
        return len(next(iter(self.arrays.values())))

    def batch(self, signature: Signature, rows: int, lengths: Lengths) -> Feeds:
        """A batch of so many rows. Padded axes are as long as the example's buckets, or else as the first buckets."""
        lengths = {**(self._in_buckets(signature) if self.is_example else blank_lengths(signature.axes)), **lengths}
        pads = {spot: pad for axis in signature.axes for spot, pad in axis.inputs.items()} if self.is_example else {}
        feeds = {name: array[np.arange(rows) % self.rows] for name, array in self.arrays.items()}
        for (tensor, dimension), length in lengths.items():
            name = signature.inputs[tensor].name
            feeds[name] = _as_long(feeds[name], dimension + 1, length, pads.get(Spot(tensor, dimension)))
        return feeds

    def _in_buckets(self, signature: Signature) -> Lengths:
        shapes = tuple(self.arrays[spec.name].shape[1:] for spec in signature.inputs)
        bucket = signature.buckets.padded(shapes)
        return {spot: bucket[spot.tensor][spot.dimension] for axis in signature.axes for spot in axis.inputs}


def _uniform(signature: Signature, dimension: int, value: int) -> WarmUpRows:
    """A row in which every element is this number, as digits in texts; an input with a default has its default.

    `dimension` is the size of dynamic dimensions.
    """
    return WarmUpRows({spec.name: _filled(spec, dimension, value) for spec in signature.inputs})


def _filled(spec: TensorSpec, dimension: int, value: Value) -> Array:
    shape = (1, *(dimension if dim is None else dim for dim in spec.dims))
    blank = str(value) if spec.is_text else value
    return np.full(shape, blank if spec.default is None else spec.default, spec.dtype)


class WarmUp:
    """Runs one model for the first time. `is_fixed`: it was exported for one number of rows."""

    def __init__(self, signature: Signature, run: Callable[[Feeds], Sequence[Array]], *, is_fixed: bool) -> None:
        """`run` raises one of `RUN_ERRORS`."""
        self._signature, self._run, self._is_fixed = signature, run, is_fixed

    def rows_that_run(self, example: Feeds | None, rows: int) -> WarmUpRows:
        """Find rows that the model runs on: the operator's example, tried row by row, or else made-up rows."""
        if example is None:
            return self._first_that_runs(rows)
        given = WarmUpRows(example, is_example=True)
        for at in range(given.rows):
            row = given._replace(arrays={name: array[at : at + 1] for name, array in example.items()})
            try:
                self._run(row.batch(self._signature, rows, {}))
            except RUN_ERRORS as error:
                why = f"the model fails on row {at} of WORKER_MODEL__WARM_UP_EXAMPLE, give values that it takes"
                raise BadConfiguration(self._failed(rows, error, why)) from error
        return given

    def outputs(self, of: WarmUpRows, rows: int) -> Sequence[Array]:
        """Run so many rows. Returns each output, checked to have a row for each."""
        try:
            outputs = self._run(of.batch(self._signature, rows, {}))
        except RUN_ERRORS as error:
            why = f"the model runs on fewer rows but fails on {rows}, as something inside holds a number of rows"
            raise BadConfiguration(self._failed(rows, error, f"{why} (docs/models.md)")) from error
        check_rows(self._signature.outputs, outputs, rows)
        return outputs

    def _first_that_runs(self, rows: int) -> WarmUpRows:
        """The first made-up rows with finite answers, by which a probe can judge the device; else the first that run.

        Raises `BadConfiguration` with the failure of the first rows tried.
        """
        is_dynamic = any(None in spec.dims for spec in self._signature.inputs)
        dimensions = TRIED_DIMENSIONS if is_dynamic else TRIED_DIMENSIONS[:1]
        failures: list[Exception] = []
        first: WarmUpRows | None = None
        # Zeros come first: every table has them. Ones are for a model that divides by its input, or by a mask's sum.
        for value, dimension in product((0, 1), dimensions):
            uniform = _uniform(self._signature, dimension, value)
            try:
                outputs = self._run(uniform.batch(self._signature, rows, {}))
            except RUN_ERRORS as error:
                failures.append(error)
                continue
            if all(map(is_finite, outputs)):
                return uniform
            first = first or uniform
        if first is not None:
            return first
        example = "name a file of rows that it takes in WORKER_MODEL__WARM_UP_EXAMPLE (docs/models.md)"
        sizes = f", with dynamic dimensions of {', '.join(map(str, dimensions))}" if is_dynamic else ""
        why = f"the model fails on zeros and on ones{sizes}: {example}"
        raise BadConfiguration(self._failed(rows, failures[0], why)) from failures[0]

    def _failed(self, rows: int, error: Exception, why: str) -> str:
        """A message with the reason and the error; for a lack of memory, with the setting to lower."""
        if isinstance(error, WrongOutput):  # no other rows would help
            return str(error)
        if not is_out_of_memory(error):
            return f"{why}: {readable(error)}"
        cure = "export the model for fewer rows" if self._is_fixed else "lower WORKER_BATCHING__MAX_BATCH_SIZE"
        if rows <= ALWAYS_RUN:
            cure = "give it more memory"
        return f"not enough memory for {counted(rows)}: {cure} ({readable(error)})"


def counted(rows: int) -> str:
    return f"{rows} row{'s' if rows > 1 else ''}"


def check_rows(specs: Sequence[TensorSpec], outputs: Sequence[Array], rows: int) -> None:
    """Raises `BadConfiguration` for an output that does not have one row for each row that went in."""
    for spec, output in zip(specs, outputs, strict=True):
        if output.shape[:1] != (rows,):
            raise BadConfiguration(
                f"output {spec.name}: {counted(rows)} went in and shape {list(output.shape)} came out, so an answer "
                "cannot be given back to its request: export the model so that axis 0 of every output is the batch "
                "(docs/models.md#rows-that-are-no-rows)"
            )


def is_finite(output: Array) -> bool:
    """True if the output has neither NaN nor infinity."""
    return output.dtype.kind != "f" or bool(np.isfinite(output).all())


def _as_long(array: Array, axis: int, length: int, pad: Value | None) -> Array:
    """The array cut to a length, or padded as requests are; on an axis without a pad its elements are repeated."""
    has = array.shape[axis]
    if length <= has or pad is None:
        taken: Array = np.take(array, np.arange(length) % has, axis)
        return taken
    shape = list(array.shape)
    shape[axis] = length - has
    return np.concatenate([array, np.full(shape, pad, array.dtype)], axis=axis)
