"""The first runs of a model, before any request: which rows it takes, and that it gives a row back for each.

Raises `BadConfiguration` with the cure where it does not. Owns nothing; the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worker.core.failures import BadConfiguration
from worker.core.records import Array, Value
from worker.core.tensors.axes import blank_lengths
from worker.core.tensors.buckets import Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.inference.onnxruntime_errors import ORT_ERRORS, is_out_of_memory, readable

# Sizes tried for dynamic dimensions at warm-up, until the model runs on one. 16: a short text, inside every table of
# positions. 64: an image whose side halves five times. 224: the image classifiers' usual side. 1: the last one left.
TRIED_DIMENSIONS = (16, 64, 224, 1)
# And a second of sound, where each row is one line of numbers: the first layers of speech models span 400 samples.
# Elsewhere it could be the side of an image, or the length of a text.
SECOND_OF_SOUND = 16_000

# The warm-up runs so many rows whatever MAX_BATCH_SIZE is.
ALWAYS_RUN = 2


Feeds = Mapping[str, Array]
Lengths = Mapping[Spot, int]


class UniformRows(NamedTuple):
    """Made of one number, digits where texts are wanted; `dimension` is the size of dynamic dimensions."""

    dimension: int
    value: int

    def batch(self, signature: Signature, rows: int, lengths: Lengths) -> Feeds:
        """Padded axes are as long as in their first buckets."""
        lengths = {**blank_lengths(signature.axes), **lengths}
        return {
            spec.name: self._input(spec, rows, [lengths.get(Spot(at, n)) for n in range(len(spec.dims))])
            for at, spec in enumerate(signature.inputs)
        }

    def of(self, value: int) -> UniformRows:
        """The same of this value, where it may have any."""
        return self._replace(value=value)

    def _input(self, spec: TensorSpec, rows: int, lengths: Sequence[int | None]) -> Array:
        """Strings are digits, which a model that parses numbers takes too; inputs with a default have it."""
        shape = (rows, *(n or (self.dimension if d is None else d) for n, d in zip(lengths, spec.dims, strict=True)))
        if spec.default is not None:
            return np.full(shape, spec.default, spec.dtype)
        return np.full(shape, str(self.value) if spec.is_text else self.value, spec.dtype)


class ExampleRows(NamedTuple):
    """The operator's rows: an array of shape (rows, *dims) for each input, repeated where more rows are wanted."""

    arrays: Feeds

    @property
    def rows(self) -> int:
        return len(next(iter(self.arrays.values())))

    def each(self) -> Iterator[ExampleRows]:
        """Row by row."""
        for at in range(self.rows):
            yield ExampleRows({name: array[at : at + 1] for name, array in self.arrays.items()})

    def batch(self, signature: Signature, rows: int, lengths: Lengths) -> Feeds:
        """Padded axes are as long as in the buckets that hold these rows."""
        lengths = {**self._in_buckets(signature), **lengths}
        pads = {spot: pad for axis in signature.axes for spot, pad in axis.inputs.items()}
        feeds = {name: array[np.arange(rows) % self.rows] for name, array in self.arrays.items()}
        for (tensor, dimension), length in lengths.items():
            name = signature.inputs[tensor].name
            feeds[name] = _as_long(feeds[name], dimension + 1, length, pads.get(Spot(tensor, dimension)))
        return feeds

    def of(self, value: int) -> ExampleRows:  # noqa: ARG002 - the values are the operator's
        return self

    def _in_buckets(self, signature: Signature) -> Lengths:
        shapes = tuple(self.arrays[spec.name].shape[1:] for spec in signature.inputs)
        bucket = signature.buckets.padded(shapes)
        return {spot: bucket[spot.tensor][spot.dimension] for axis in signature.axes for spot in axis.inputs}


WarmUpRows = UniformRows | ExampleRows


class WarmUp:
    """Runs one model for the first time. `is_fixed`: it was exported for one number of rows."""

    def __init__(self, signature: Signature, run: Callable[[Feeds], Sequence[Array]], *, is_fixed: bool) -> None:
        """`run` raises what ONNX Runtime does."""
        self._signature, self._run, self._is_fixed = signature, run, is_fixed

    def rows_that_run(self, example: ExampleRows | None, rows: int) -> WarmUpRows:
        """The operator's example, each row of which runs; without one the first made-up rows that do."""
        if example is None:
            return self._first_that_runs(rows)
        for at, row in enumerate(example.each()):
            try:
                self._run(row.batch(self._signature, rows, {}))
            except ORT_ERRORS as error:
                why = f"the model fails on row {at} of WORKER_MODEL__WARM_UP_EXAMPLE, give values that it takes"
                raise BadConfiguration(self._failed(rows, error, why)) from error
        return example

    def outputs(self, of: WarmUpRows, rows: int) -> Sequence[Array]:
        """So many rows of each output, for so many that went in."""
        try:
            outputs = self._run(of.batch(self._signature, rows, {}))
        except ORT_ERRORS as error:
            why = f"the model runs on fewer rows but fails on {rows}, as something inside holds a number of rows"
            raise BadConfiguration(self._failed(rows, error, f"{why} (docs/models.md)")) from error
        check_rows(self._signature.outputs, outputs, rows)
        return outputs

    def _first_that_runs(self, rows: int) -> UniformRows:
        """The first with finite answers, as others do not show what a device makes of them; else the first that runs.

        Raises `BadConfiguration` with the failure of the first ones tried.
        """
        dimensions = self._dimensions()
        failures: list[Exception] = []
        ran: list[UniformRows] = []
        # Zeros first: they are in every table. Ones for a model that divides by its input, or by the sum of a mask.
        for uniform in [UniformRows(dimension, value) for value in (0, 1) for dimension in dimensions]:
            if ran and uniform.dimension != ran[0].dimension:
                continue
            try:
                outputs = self._run(uniform.batch(self._signature, rows, {}))
            except ORT_ERRORS as error:
                failures.append(error)
                continue
            if all(map(is_finite, outputs)):
                return uniform
            ran.append(uniform)
        if ran:
            return ran[0]
        sizes = f", with dynamic dimensions of {', '.join(map(str, dimensions))}" if len(dimensions) > 1 else ""
        example = "name a file of rows that it takes in WORKER_MODEL__WARM_UP_EXAMPLE (docs/models.md)"
        why = f"the model fails on zeros and on ones{sizes}: {example}"
        raise BadConfiguration(self._failed(rows, failures[0], why)) from failures[0]

    def _dimensions(self) -> Sequence[int]:
        """The sizes to try for dynamic dimensions."""
        dynamic = [spec for spec in self._signature.inputs if None in spec.dims]
        if not dynamic:
            return TRIED_DIMENSIONS[:1]
        may_be_sound = any(spec.is_float for spec in dynamic) and all(spec.dims == (None,) for spec in dynamic)
        return (*TRIED_DIMENSIONS, SECOND_OF_SOUND) if may_be_sound else TRIED_DIMENSIONS

    def _failed(self, rows: int, error: Exception, why: str) -> str:
        """The reason and the error, unless it is a lack of memory: then what to lower."""
        if not is_out_of_memory(error):
            return f"{why}: {readable(error)}"
        cure = "export the model for fewer rows" if self._is_fixed else "lower WORKER_BATCHING__MAX_BATCH_SIZE"
        if rows <= ALWAYS_RUN:
            cure = "give it more memory"
        return f"not enough memory for {counted(rows)}: {cure} ({readable(error)})"


def counted(rows: int) -> str:
    return f"{rows} row{'s' if rows > 1 else ''}"


def check_rows(specs: Sequence[TensorSpec], outputs: Sequence[Array], rows: int) -> None:
    """Raises `BadConfiguration` for an output that has not a row for each that went in."""
    for spec, output in zip(specs, outputs, strict=True):
        if output.shape[:1] != (rows,):
            raise BadConfiguration(
                f"output {spec.name}: {counted(rows)} went in and shape {list(output.shape)} came out, so an answer "
                "cannot be given back to its request: export the model so that axis 0 of every output is the batch "
                "(docs/models.md#rows-that-are-no-rows)"
            )


def is_finite(output: Array) -> bool:
    """Whether it has neither NaN nor infinity."""
    return output.dtype.kind != "f" or bool(np.isfinite(output).all())


def _as_long(array: Array, axis: int, length: int, pad: Value | None) -> Array:
    """Cut off, or padded as requests are; along an axis that is not padded its elements are repeated."""
    has = array.shape[axis]
    if length <= has or pad is None:
        taken: Array = np.take(array, np.arange(length) % has, axis)
        return taken
    shape = list(array.shape)
    shape[axis] = length - has
    return np.concatenate([array, np.full(shape, pad, array.dtype)], axis=axis)
