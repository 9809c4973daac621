"""The elements of one tensor, from JSON numbers, protobuf fields or bytes, and strings back to bytes.

Strict: nothing is cast or parsed. An integer may stand for a float, because JSON writes 1.0 as 1. Every function takes
a tensor's claim as already checked by the signature, and raises `Reject` when the elements are not what it says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np

from worker.core.failures import Reject
from worker.core.records import Array, Tensor
from worker.core.signature import TensorSpec

_KINDS: dict[str, frozenset[type]] = {
    "b": frozenset({bool}),
    "i": frozenset({int}),
    "u": frozenset({int}),
    "f": frozenset({int, float}),
    "O": frozenset({str}),
}
# What comes out of a JSON parser, in words for messages.
NAMES: dict[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a fraction",
    str: "a string",
    type(None): "null",
    list: "an array",
    dict: "an object",
}
_INTEGERS = 2.0**63  # INT64 begins at minus so much, UINT64 ends below twice as much
_LENGTH = struct.Struct("<I")  # before each string in binary form


# The numbers as `struct` knows them. It takes only numbers, and booleans for 1 and 0, and refuses what is out of range:
# packing 256 floats costs 3 µs, looking at the type of each and numpy's conversion 13 (measured).
_FORMATS = {
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP32": "f",
    "FP64": "d",
}


def from_values(spec: TensorSpec, values: Sequence[object]) -> Tensor:
    """The elements of Python values, flat. FP16 has no such form: its numbers would be rounded twice."""
    if spec.datatype == "FP16":
        raise Reject(f"input {spec.name}: FP16 is taken only as bytes, in the binary-data form or raw_input_contents")
    packed = _packed(spec.datatype, values)
    return packed if packed is not None else _looked_at(spec, values)


def _packed(datatype: str, values: Sequence[object]) -> bytes | None:
    """None when some of the values may not be what they have to be."""
    if datatype not in _FORMATS:
        return None
    number = _numbers(_FORMATS[datatype], 1)
    try:
        packed = _numbers(_FORMATS[datatype], len(values)).pack(*values)
    except (struct.error, OverflowError):
        return None
    # Only where there are ones or zeros can booleans be among them.
    return None if number.pack(1) in packed or number.pack(0) in packed else packed


@lru_cache(maxsize=256)
def _numbers(form: str, count: int) -> struct.Struct:
    return struct.Struct(f"<{count}{form}")


def _looked_at(spec: TensorSpec, values: Sequence[object]) -> Array:
    """Each value by its type. Raises `Reject`."""
    odd = set(map(type, values)) - _KINDS[spec.dtype.kind]
    if odd == {float} and spec.dtype.kind in "iu" and any(map(_is_too_long, values)):
        raise _out_of_range(spec)
    if odd:
        names = ", ".join(sorted(NAMES[kind] for kind in odd))
        raise Reject(f"input {spec.name}: expected {spec.datatype} elements, got {names} among them")
    try:
        with np.errstate(over="raise"):
            return np.array(values, spec.dtype)
    except (OverflowError, FloatingPointError):
        raise _out_of_range(spec) from None


def _out_of_range(spec: TensorSpec) -> Reject:
    return Reject(f"input {spec.name}: an element is out of the range of {spec.datatype}")


def _is_too_long(value: object) -> bool:
    """Whether this is an integer of over 64 bits, or as good as one: the JSON reader makes floats of those."""
    return isinstance(value, float) and not -_INTEGERS < value < 2 * _INTEGERS


def flat(spec: TensorSpec, elements: int, shape: Sequence[int], data: object) -> list[object]:
    """The elements of an Open Inference Protocol `data`: flat, or nested exactly as the shape says."""
    if not isinstance(data, list):
        raise Reject(f"input {spec.name}: expected `data` to be an array of {elements} elements")
    level = data
    if level and isinstance(level[0], list):
        level = _unnest(spec, shape, data)
    if len(level) != elements:
        raise Reject(f"input {spec.name}: shape {list(shape)} holds {elements} elements, got {len(level)}")
    return level


def _unnest(spec: TensorSpec, shape: Sequence[int], data: list[object]) -> list[object]:
    level: list[object] = [data]
    for dimension in shape:
        inner = [part for part in level if isinstance(part, list) and len(part) == dimension]
        if len(inner) < len(level):
            raise Reject(f"input {spec.name}: `data` is not nested as shape {list(shape)} says")
        level = list(chain.from_iterable(inner))
    return level


def from_bytes(raw: bytes | memoryview, spec: TensorSpec, elements: int) -> Tensor:
    """The bytes themselves for numbers, a flat array of str for strings."""
    if spec.is_text:
        return np.array(_unpack(spec, elements, raw), object)
    spec.check_length(elements, len(raw))
    check_booleans(spec, raw)
    return raw


def check_booleans(spec: TensorSpec, raw: bytes | memoryview) -> None:
    """A BOOL is a byte of 0 or 1; onnxruntime would compute with a 2 as it stands."""
    if spec.datatype == "BOOL" and bool((np.frombuffer(raw, np.uint8) > 1).any()):
        raise Reject(f"input {spec.name}: a BOOL is a byte of 0 or 1, got another")


def _unpack(spec: TensorSpec, elements: int, raw: bytes | memoryview) -> list[str]:
    strings: list[str] = []
    at = 0
    while at < len(raw):
        start = at + _LENGTH.size
        if start > len(raw) or (at := start + _LENGTH.unpack_from(raw, at)[0]) > len(raw):
            raise Reject(f"input {spec.name}: the bytes end inside string {len(strings)}")
        strings.append(text(spec, raw[start:at]))
    if len(strings) != elements:
        raise Reject(f"input {spec.name}: expected {elements} strings, got {len(strings)}")
    return strings


def text(spec: TensorSpec, raw: bytes | memoryview) -> str:
    """One string. Raises `Reject` for bytes that are not UTF-8: ONNX knows no others."""
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        raise Reject(f"input {spec.name}: a BYTES element is not UTF-8") from None


def to_bytes(array: Array) -> bytes:
    """An output's elements in row-major order: little-endian numbers, or strings each behind its length."""
    return array.tobytes() if array.dtype != object else b"".join(_pack(array.reshape(-1).tolist()))


def _pack(strings: Iterable[str]) -> Iterable[bytes]:
    for string in strings:
        raw = string.encode()
        yield _LENGTH.pack(len(raw))
        yield raw
