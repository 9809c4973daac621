"""The layout of a state: the model's tensors that are state, and how the changelog stores one key's state.

A changelog value is a head of 24 bytes and then each tensor, little-endian, row-major, in the order of
`STATE__TENSORS`. All values of one layout are equally long, so thousands are read as one array (`schemas/README.md`).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.core.failures import BadConfiguration
from worker.core.records import Array, Value
from worker.core.tensors.buckets import Axis, Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

VARIABLE = "WORKER_STATE__TENSORS"
FORMAT = 1  # of a changelog value
FIRST = 1  # a flag: the key had no state before this one
HEAD_BYTES = 24  # at the start of a changelog value
ANOTHERS = "a state of other tensors than this model's"

NO_TIME = -1  # of a record without a timestamp
HEAD = [("format", "u1"), ("flags", "u1"), ("spare", "<u2"), ("layout", "<u4"), ("offset", "<i8"), ("time", "<i8")]


def is_first(value: bytes) -> bool:
    """True if the changelog value says that its key had no state before."""
    return bool(value[1] & FIRST)


def marked(value: bytes, *, first: bool) -> bytes:
    """Returns the changelog value with the flag `FIRST` set or cleared."""
    return value[:1] + bytes([value[1] & ~FIRST | first]) + value[2:]


class StateTensor(NamedTuple):
    """A pair of a model's input and output: the output of one request is the input of the key's next request."""

    spec: TensorSpec  # the input; its `dims` are without the batch axis
    output: str


@dataclass(frozen=True)
class StateLayout:
    """The tensors of one key's state. `initial` is the state of a new key: an array of shape `dims` for each tensor."""

    tensors: tuple[StateTensor, ...]
    initial: tuple[Array, ...]

    @cached_property
    def fingerprint(self) -> int:
        """The checksum that tells our states from another model's in the changelog."""
        said = ";".join(f"{t.spec.name}:{t.output}:{t.spec.datatype}:{_dims(t.spec)}" for t in self.tensors)
        return zlib.crc32(said.encode())

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of one changelog value."""
        return np.dtype([*HEAD, *((f"s{at}", t.spec.dtype, _dims(t.spec)) for at, t in enumerate(self.tensors))])

    @cached_property
    def _headed(self) -> np.dtype[Any]:
        """The type whose `head` is all of a value before the offset."""
        size = self.dtype.itemsize
        return np.dtype({"names": ["head"], "formats": ["<u8"], "offsets": [0], "itemsize": size})

    @cached_property
    def _opaque(self) -> np.dtype[Any]:
        """The type that lets numpy return all values as bytes in one call: 64 in 0.9 us, by slices in 3.7 (2026-11)."""
        return np.dtype((np.void, self.dtype.itemsize))

    def written(self, offsets: Array, times: Array, firsts: Array, states: Sequence[Array]) -> list[bytes]:
        """Returns a changelog value for each row of `states`, which has one array of shape (rows, *dims) per tensor.

        `offsets` are the offsets of the requests that wrote the states, `times` the last use in milliseconds since the
        epoch. `firsts` is true where the key had no state before.
        """
        values = np.empty(len(offsets), self.dtype)
        # Each field costs a microsecond, so the four before the offset are written as one number.
        head = FORMAT | self.fingerprint << 32
        values.view(self._headed)["head"] = np.where(firsts, head | FIRST << 8, head)
        values["offset"], values["time"] = offsets, times
        for at, rows in enumerate(states):
            values[f"s{at}"] = rows
        written: list[bytes] = values.view(self._opaque).tolist()
        return written

    def tensors_of(self, rows: NDArray[Any]) -> list[Array]:
        """Returns the array of each tensor in rows of `dtype`, or in a single row."""
        return [rows[f"s{at}"] for at in range(len(self.tensors))]

    def is_ours(self, value: bytes) -> bool:
        """True if a changelog value is a state of this layout."""
        return (
            len(value) == self.dtype.itemsize
            and value[0] == FORMAT
            and value[4:8] == self.fingerprint.to_bytes(4, "little")
        )

    def is_anothers(self, value: bytes) -> bool:
        """True if a changelog value is a state of another layout."""
        return len(value) >= HEAD_BYTES and value[0] == FORMAT and value[4:8] != self.fingerprint.to_bytes(4, "little")

    def read(self, values: Sequence[bytes]) -> NDArray[Any]:
        """Returns changelog values as rows of `dtype`. Raises `ValueError` if one of them has another layout."""
        if set(map(len, values)) - {self.dtype.itemsize}:
            raise ValueError(ANOTHERS)
        rows = np.frombuffer(b"".join(values), self.dtype)
        if len(rows) and not ((rows["format"] == FORMAT) & (rows["layout"] == self.fingerprint)).all():
            raise ValueError(ANOTHERS)
        return rows


class Sieve:
    """Finds this model's states among records that any client may have written. Owns the count of ignored records.

    If it finds states of another model and none of this model, the settings do not fit, and the worker does not start.
    Any other foreign record is ignored and counted: one record does not end a group.
    """

    def __init__(self, layout: StateLayout, *, has_ours: bool = False) -> None:
        """`has_ours`: states of this model were found earlier."""
        self._layout = layout
        self._has_ours = has_ours
        self._has_anothers = False
        self.passed_over = 0

    def rows(self, keys: Sequence[bytes], values: Sequence[bytes]) -> tuple[Sequence[bytes], NDArray[Any]]:
        """Returns the keys whose values are states of this model, and their rows."""
        try:
            rows = self._layout.read(values)
        except ValueError:
            ours = [at for at, value in enumerate(values) if self.takes(value)]
            keys, rows = [keys[at] for at in ours], self._layout.read([values[at] for at in ours])
        self._has_ours |= bool(len(rows))
        return keys, rows

    def takes(self, value: bytes) -> bool:
        """True if the value is a state of this model; counts it as passed over if not."""
        if self._layout.is_ours(value):
            self._has_ours = True
            return True
        self._has_anothers |= self._layout.is_anothers(value)
        self.passed_over += 1
        return False

    def check(self) -> None:
        """Raises `ValueError` if states were found, and all are another model's."""
        if self._has_anothers and not self._has_ours:
            raise ValueError(ANOTHERS)


def layout_of(
    signature: Signature, pairs: Mapping[str, str], initial: float | Path, *, with_answer: bool
) -> tuple[StateLayout, Signature]:
    """Returns the layout of a model's state, and the signature that is left for its requests and answers.

    `pairs` maps inputs to outputs. Raises `BadConfiguration` if the model cannot have these tensors as state.
    """
    inputs = {spec.name: spec for spec in signature.inputs}
    outputs = {spec.name: spec for spec in signature.outputs}
    for name, output in pairs.items():
        _check_pair(name, output, inputs, outputs)
    if len(set(pairs.values())) < len(pairs):
        raise BadConfiguration(f"{VARIABLE}: names an output twice; each input has an output of its own")
    left = tuple(spec for spec in signature.inputs if spec.name not in pairs)
    given = signature.outputs if with_answer else tuple(s for s in signature.outputs if s.name not in pairs.values())
    if not left:
        raise BadConfiguration(f"{VARIABLE}: takes all of the model's inputs; a request must bring one")
    if not given:
        raise BadConfiguration(
            f"{VARIABLE}: takes all of the model's outputs; set WORKER_STATE__ANSWER=true to answer with the state"
        )
    tensors = tuple(StateTensor(inputs[name], output) for name, output in pairs.items())
    layout = StateLayout(tensors, tuple(_initial(tensor.spec, initial) for tensor in tensors))
    axes = tuple(_moved(axis, signature, left, given) for axis in signature.axes)
    return layout, replace(signature, inputs=left, outputs=given, axes=axes)


def _moved(axis: Axis, signature: Signature, left: Sequence[TensorSpec], given: Sequence[TensorSpec]) -> Axis:
    """Returns the padded axis with the positions of inputs and outputs in the new signature; states are not padded."""
    inputs = {
        Spot(left.index(spec), dimension): value
        for (at, dimension), value in axis.inputs.items()
        if (spec := signature.inputs[at]) in left
    }
    outputs = [
        Spot(given.index(spec), dimension) for at, dimension in axis.outputs if (spec := signature.outputs[at]) in given
    ]
    return replace(axis, inputs=inputs, outputs=outputs)


def _check_pair(name: str, output: str, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]) -> None:
    if name not in inputs:
        raise BadConfiguration(f"{VARIABLE}: the model has no input {name}; it takes {', '.join(inputs)}")
    if output not in outputs:
        raise BadConfiguration(f"{VARIABLE}: the model has no output {output}; it gives {', '.join(outputs)}")
    takes, gives = inputs[name], outputs[output]
    if takes.is_text or None in takes.dims:
        raise BadConfiguration(
            f"{VARIABLE}: input {name} is {takes}, and a state is made of numbers and has one size; export the model "
            "with only the batch axis dynamic there, as the first axis"
        )
    is_alike = len(takes.dims) == len(gives.dims) and all(
        there in (None, here) for here, there in zip(takes.dims, gives.dims, strict=True)
    )
    if takes.datatype != gives.datatype or not is_alike:
        raise BadConfiguration(
            f"{VARIABLE}: output {output} ({gives}) cannot be the next {name} ({takes}): types and shapes must be "
            "equal except the batch axis, which comes first"
        )


def _initial(spec: TensorSpec, initial: float | Path) -> Array:
    """Returns a new key's array for this tensor. Raises `BadConfiguration` for a number or a file that does not fit."""
    dims = _dims(spec)
    if not isinstance(initial, Path):
        return np.full(dims, _element(spec, initial), spec.dtype)
    try:
        found = np.load(initial, allow_pickle=False)
        array = found[spec.name] if isinstance(found, np.lib.npyio.NpzFile) else found
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise BadConfiguration(
            f"WORKER_STATE__INITIAL: {initial} has no array for {spec.name} that can be read: {error}; give a number, "
            "an .npy, or an .npz with an array for each input by name"
        ) from None
    if (array.dtype, array.shape) != (spec.dtype, dims):
        raise BadConfiguration(
            f"WORKER_STATE__INITIAL: {initial} has {array.dtype} of shape {array.shape} for {spec.name}: expected "
            f"{spec.dtype} of shape {dims}, without the batch axis"
        )
    return np.array(array, order="C")  # keeps the shape () of a state of one number


def _element(spec: TensorSpec, number: float) -> Value:
    """Returns the number as an element of this type. Raises `BadConfiguration` if the type would change its value."""
    value: Value = number
    if spec.dtype.kind == "b" and number in {0, 1}:
        value = bool(number)
    elif spec.dtype.kind in "iu" and number.is_integer():
        value = int(number)
    if not spec.can_be(value):
        cure = "0 or 1" if spec.dtype.kind == "b" else spec.values
        raise BadConfiguration(
            f"WORKER_STATE__INITIAL: {spec.name} is {spec.datatype} and cannot be {number:g}: give {cure}, or a file"
        )
    return value


def _dims(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(d for d in spec.dims if d is not None)
