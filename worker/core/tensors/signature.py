"""The model's signature, and the only judge of names, datatypes, shapes and row counts.

Every claim of a request about its tensors is checked here with Python integers, before any array of that shape exists:
numpy's own products overflow (`[2**32, 2**32]` counts 0 elements), and a negative dimension reshapes silently.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from worker.core.failures import Code, Reject, listed
from worker.core.records import ModelKey, Tensor
from worker.core.tensors.buckets import Axis, Buckets
from worker.core.tensors.left_out_inputs import Filling, filling_of
from worker.core.tensors.specs import NamedTensor, TensorSpec

# How many digits of the model file's digest an answer's `model-version` shows.
EDITION_DIGITS = 8

# numpy's limit is 64 dimensions, ONNX models use at most about six.
MAX_DIMENSIONS = 8
# A message shows this many elements of a shape: a true shape is shown whole, a megabyte in its place is cut.
_SHORT = reprlib.Repr()
_SHORT.maxlist = MAX_DIMENSIONS


class Judged(NamedTuple):
    """A request's judged tensors, in the order of the model's inputs."""

    rows: int
    shapes: tuple[tuple[int, ...], ...]
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True)
class Signature:
    """The model's inputs and outputs; `max_rows` bounds one request, and `axes` are padded.

    `sha256` is the digest of the model's file in hexadecimal; empty if there is no file.
    """

    name: str
    version: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_rows: int = 65536
    axes: tuple[Axis, ...] = ()
    sha256: str = ""

    @cached_property
    def buckets(self) -> Buckets:
        """The padded axes, which decide which requests may share a batch."""
        return Buckets(self.axes, self.inputs)

    @cached_property
    def _input_by_name(self) -> dict[str, TensorSpec]:
        return {spec.name: spec for spec in self.inputs}

    @cached_property
    def output_index(self) -> dict[str, int]:
        return {spec.name: at for at, spec in enumerate(self.outputs)}

    def input(self, name: str) -> TensorSpec:
        """The input of that name. Raises `Reject` if the model has none."""
        spec = self._input_by_name.get(name)
        if spec is None:
            raise Reject(f"the model has no input {_shown(name)}; it takes {self.takes}")
        return spec

    @cached_property
    def key(self) -> ModelKey:
        """The name and version that requests, batches and answers use for the model."""
        return ModelKey(self.name, self.version)

    @property
    def edition(self) -> str:
        """Identifies the file that answers: the version as it was set, and the beginning of the file's digest."""
        return f"{self.version}@{self.sha256[:EDITION_DIGITS]}" if self.sha256 else self.version

    @cached_property
    def required(self) -> tuple[TensorSpec, ...]:
        """The inputs that no request may leave out."""
        return tuple(spec for spec in self.inputs if spec.default is None)

    @cached_property
    def fillings(self) -> dict[str, Filling]:
        """How to make each input that may be left out."""
        return {spec.name: filling_of(spec, self.inputs) for spec in self.inputs if spec.default is not None}

    @cached_property
    def takes(self) -> str:
        """The inputs in words, for messages: the first three."""
        return listed(self.inputs)

    def check_model(self, name: str | None, version: str | None) -> None:
        """Raises `Reject` (NOT_FOUND) if a request names a model or version that is not served here."""
        if name and name != self.name:
            raise Reject(f"model {_shown(name)} is not served here; {_shown(self.name)} is", Code.NOT_FOUND)
        if version and version != self.version:
            raise Reject(
                f"version {_shown(version)} of {self.name} is not served here; {_shown(self.version)} is",
                Code.NOT_FOUND,
            )

    def check_claim(self, name: str, datatype: str, shape: Sequence[object]) -> int:
        """The number of elements that a tensor of this name, datatype and shape holds.

        Called before the elements are decoded. Raises `Reject` if the model does not take such a tensor.
        """
        spec = self.input(name)
        if datatype != spec.datatype:
            raise Reject(f"input {spec.name}: expected datatype {spec.datatype}, got {_shown(datatype)}")
        if len(shape) > MAX_DIMENSIONS:
            raise Reject(f"input {spec.name}: {len(shape)} dimensions, at most {MAX_DIMENSIONS} are possible")
        if len(shape) != len(spec.dims) + 1:
            raise Reject(f"input {spec.name}: expected {spec}, got shape {_shown(list(shape))}")
        dims = [self._dimension(spec, shape, d) for d in shape]
        if any(want is not None and want != got for want, got in zip(spec.dims, dims[1:], strict=True)):
            raise Reject(f"input {spec.name}: expected {spec}, got shape {_shown(dims)}")
        self._check_rows(spec, dims[0])
        return math.prod(dims)

    def _check_rows(self, spec: TensorSpec, rows: int) -> None:
        if rows > self.max_rows:
            raise Reject(
                f"input {spec.name}: {rows} rows, at most {self.max_rows} are taken in one record",
                Code.RESOURCE_EXHAUSTED,
            )

    @staticmethod
    def _dimension(spec: TensorSpec, shape: Sequence[object], dimension: object) -> int:
        # A bool is an int in Python, but `true` is no dimension. Without rows, or with an empty axis, nothing can run.
        if not isinstance(dimension, int) or isinstance(dimension, bool) or dimension < 1:
            raise Reject(
                f"input {spec.name}: every dimension must be an integer of at least 1, got {_shown(list(shape))}"
            )
        return dimension

    def judge(self, tensors: Sequence[NamedTensor]) -> Judged:
        """Judge the request as a whole: each input once, all with one number of rows. Fills in the inputs left out.

        Raises `Reject`. Each tensor must have passed `check_claim` and hold as many elements as it claims.
        """
        claimed = {tensor.name: tensor for tensor in tensors}
        if len(claimed) < len(tensors):
            raise Reject("an input is given twice")
        missing = [spec.name for spec in self.required if spec.name not in claimed]
        if missing:
            raise Reject(f"missing input {listed(missing)}; the model takes {self.takes}")
        rows = {tensor.shape[0] for tensor in tensors}
        if len(rows) > 1:
            first = {claimed[spec.name].shape[0]: spec.name for spec in reversed(self.inputs) if spec.name in claimed}
            counts = listed(f"{name}: {count}" for count, name in reversed(first.items()))
            raise Reject(f"all inputs of a request must have the same number of rows, got {counts}")
        count = rows.pop()
        ordered = [
            claimed.get(spec.name)
            or NamedTensor(spec.name, spec.datatype, *self.fillings[spec.name].make(count, claimed))
            for spec in self.inputs
        ]
        shapes = tuple(tuple(tensor.shape[1:]) for tensor in ordered)
        self.buckets.check(shapes)
        return Judged(count, shapes, tuple(tensor.tensor for tensor in ordered))

    @cached_property
    def raw_input(self) -> TensorSpec | None:
        """The input that plain rows hold: the only required one, if it is numeric, of fixed dimensions; else None."""
        if len(self.required) != 1 or self.required[0].row_bytes is None:
            return None
        return self.required[0]

    def raw_rows(self, got_bytes: int) -> int:
        """How many rows of `raw_input` these bytes hold. Raises `Reject` unless it is a whole number of rows."""
        spec = self.raw_input
        if spec is None or spec.row_bytes is None:
            raise Reject(
                "raw rows need a model with one numeric input of fixed dimensions; this one takes "
                f"{self.takes}: send application/json, application/x-protobuf or the binary-data form"
            )
        rows, rest = divmod(got_bytes, spec.row_bytes)
        if rest or not rows:
            raise Reject(f"input {spec.name}: expected rows of {spec.row_bytes} bytes ({spec}), got {got_bytes} bytes")
        self._check_rows(spec, rows)
        return rows


def _shown(value: object) -> str:
    """A publisher's value for a message: quoted, and never longer than a line."""
    text = repr(value[:80]) if isinstance(value, str) else _SHORT.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
