"""One tensor as a model declares it, and as a request claims it. `signature.py` compares the two."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from worker.core.block import Block
from worker.core.failures import Reject
from worker.core.records import Array, Tensor, Value
from worker.core.tensors.room import Room

# Open Inference Protocol datatypes and their little-endian numpy types. BYTES are strings: ONNX knows no other.
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}

TEXT_BYTES = 64  # for one string in memory; a short one takes about 56


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model. `dims` are the dimensions after the batch axis; None is a dynamic one.

    `symbols` are the names that the model's file gives to the dynamic dimensions, or None; one name is one axis. Empty
    if the names are not known. An input with a `default` may be left out.
    """

    name: str
    datatype: str
    dims: tuple[int | None, ...]
    symbols: tuple[str | None, ...] = ()
    default: Value | None = None

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return DTYPES[self.datatype]

    @cached_property
    def is_text(self) -> bool:
        return self.datatype == "BYTES"

    @cached_property
    def is_float(self) -> bool:
        return self.dtype.kind == "f"

    @cached_property
    def needs_a_look(self) -> bool:
        """True if bytes of the right number may still be no elements: strings, and booleans other than 0 and 1."""
        return self.datatype in ("BYTES", "BOOL")

    @cached_property
    def element_bytes(self) -> int:
        """The bytes of one element in a batch; a string counts only as its reference."""
        return self.dtype.itemsize

    @cached_property
    def row_bytes(self) -> int | None:
        """The bytes of one row; None if a dimension is dynamic or the elements are strings."""
        if self.is_text or None in self.dims:
            return None
        return math.prod(d for d in self.dims if d is not None) * self.dtype.itemsize

    def check_length(self, elements: int, got_bytes: int) -> None:
        """Raises `Reject` unless a numeric tensor of `elements` elements takes exactly `got_bytes`."""
        expected = elements * self.dtype.itemsize
        if got_bytes != expected:
            raise Reject(f"input {self.name}: expected {expected} bytes ({elements} elements), got {got_bytes}")

    def array(self, tensor: Tensor, shape: Sequence[int]) -> Array:
        """The elements of a tensor in this shape; a view if they are numbers."""
        flat: Array = np.array(tensor, object) if self.is_text else np.frombuffer(tensor, self.dtype)  # type: ignore[arg-type]  # a buffer
        return flat.reshape(shape)

    def joined(self, tensors: Sequence[Tensor], room: Room) -> Array:
        """The elements of these tensors, one after the other; of a single tensor of numbers perhaps a view."""
        if isinstance(tensors, Block):
            if self.is_text:
                return tensors.rows.ravel()
            tensors = [tensors.rows.reshape(-1).view(np.uint8).data]
        elif self.is_text:
            return np.array(list(chain.from_iterable(tensors)), object)
        flat: Array = np.frombuffer(room.join(tensors), self.dtype)
        return flat if flat.flags.aligned else flat.copy()  # kernels may load whole vectors

    def symbol(self, dimension: int) -> str | None:
        """The name that the model's file gives to this dimension (0: the first after the batch axis), if any."""
        return self.symbols[dimension] if self.symbols else None

    def can_be(self, value: Value) -> bool:
        """True if an operator may give that value for every element: of its kind, or an integer for a float.

        NaN and infinity may be given as such, but a finite number must not become infinite.
        """
        kind = self.dtype.kind
        if kind in "bO" or isinstance(value, bool | str):
            return isinstance(value, bool if kind == "b" else str) and kind in "bO"
        if kind != "f":
            limits = np.iinfo(self.dtype)
            return isinstance(value, int) and limits.min <= value <= limits.max
        try:
            with np.errstate(over="raise"):
                np.array(value, "f8").astype(self.dtype)
        except (OverflowError, FloatingPointError):
            return False
        return True

    @property
    def values(self) -> str:
        """The possible values of an element, in words."""
        match self.dtype.kind:
            case "b":
                return "true or false"
            case "O":
                return "a text"
            case "f":
                return f"a number of at most {np.finfo(self.dtype).max}"
        limits = np.iinfo(self.dtype)
        return f"a whole number from {limits.min} to {limits.max}"

    @property
    def blank(self) -> Value:
        """The default padding: false, an empty text or 0."""
        blanks: dict[str, Value] = {"b": False, "O": ""}
        return blanks.get(self.dtype.kind, 0)

    def __str__(self) -> str:
        axes = [self.symbol(at) or "?" if dim is None else str(dim) for at, dim in enumerate(self.dims)]
        text = f"{self.name} {self.datatype}[{', '.join(['batch', *axes])}]"
        return text if self.default is None else f"{text} ({json.dumps(self.default)} if left out)"


class NamedTensor(NamedTuple):
    """One tensor as a request claims it: `shape` includes the batch axis, `tensor` is already of that datatype."""

    name: str
    datatype: str
    shape: Sequence[int]
    tensor: Tensor
