"""Protobuf's wire format, as far as it is read before the parser, or instead of it.

The parser builds an object for each thing in a message, and Python one for each number. So how many things there are is
looked at before it builds them, and packed numbers are taken from the bytes they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from worker.codecs.encodings.elements import out_of_range
from worker.core.failures import Reject
from worker.core.records import Array, Tensor
from worker.core.tensors.specs import TensorSpec

_VARINT, _FIXED_64, _BYTES, _GROUP, _END_GROUP, _FIXED_32 = range(6)
_SIZES = {_FIXED_64: 8, _GROUP: 0, _END_GROUP: 0, _FIXED_32: 4}  # what a group holds are fields like others
_LONGEST = 10  # bytes of a varint
_CHUNK = 16 * 1024  # bytes of varints read at once: each takes some 40 bytes on the way


def fields(value: bytes, at: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and stop of each field between two places. Ends where the bytes are none: the parser says why."""
    while at < stop:
        tag, at = _varint(value, at)
        kind = tag & 7
        if kind == _BYTES:
            length, at = _varint(value, at)
            end = at + length
        elif kind == _VARINT:
            _, end = _varint(value, at)
        elif kind in _SIZES:
            end = at + _SIZES[kind]
        else:
            return
        yield tag >> 3, at, min(end, stop)
        at = end


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends; far behind the end, if there is none."""
    number = 0
    for shift, byte in enumerate(value[at : at + _LONGEST]):
        if byte < 0x80:  # most often the first
            return number | byte << 7 * shift, at + shift + 1
        number |= (byte & 0x7F) << 7 * shift
    return number, len(value) + 1


def packed(message: bytes, number: int) -> bytes | None:
    """The contents of a message's only field, if it has this number (up to 15) and a length; None for others."""
    if not message or message[0] != number << 3 | _BYTES:
        return None
    length, start = _varint(message, 1)
    # A length of over five bytes is none to the parser.
    return message[start:] if start <= 6 and start + length == len(message) else None


def elements(spec: TensorSpec, raw: bytes, count: int, field: str) -> Tensor | None:
    """So many numbers, packed as this repeated field of the datatype has them; None for other bytes.

    Floats are what they are in memory, and so are truth values, except odd ways to write them. Raises `Reject`.
    """
    if spec.is_text or len(raw) % (spec.element_bytes if spec.is_float else 1):
        return None
    if spec.is_float:
        check_count(spec, count, len(raw) // spec.element_bytes, field)
        return raw
    codes = np.frombuffer(raw, np.uint8)
    if codes.max(initial=0) < (2 if spec.datatype == "BOOL" else 0x80):
        check_count(spec, count, len(raw), field)
        return codes.astype(spec.dtype)
    is_cut = codes[-1] >= 0x80
    return None if is_cut or spec.datatype == "BOOL" else _integers(spec, codes, count, field)


def check_count(spec: TensorSpec, expected: int, got: int, field: str) -> None:
    """Raises `Reject` unless there are as many elements as the shape says."""
    if got != expected:
        raise Reject(f"input {spec.name}: the shape holds {expected} elements, {field} has {got}")


def _integers(spec: TensorSpec, codes: Array, count: int, field: str) -> Array | None:
    check_count(spec, count, int(np.count_nonzero(codes < 0x80)), field)
    found: Array = np.empty(count, spec.dtype)
    have, at = 0, 0
    while at < len(codes):
        chunk = codes[at : at + _CHUNK]
        ends = np.flatnonzero(chunk < 0x80) + 1
        numbers = _numbers(chunk, ends) if len(ends) else None  # none ends: more bytes than a number can have
        if numbers is None:
            return None
        found[have : have + len(ends)] = _in_range(spec, numbers)
        have, at = have + len(ends), at + int(ends[-1])
    return found


def _numbers(chunk: Array, ends: Array) -> Array | None:
    """The 64 bits of the varints that end there; None where one is too long."""
    starts = np.concatenate(([0], ends[:-1]))
    lengths = ends - starts
    shortest, longest = int(lengths.min()), int(lengths.max())
    if longest > _LONGEST:
        return None
    numbers = (chunk[starts] & 0x7F).astype(np.uint64)
    for at in range(1, longest):
        which = slice(None) if at < shortest else np.flatnonzero(lengths > at)
        numbers[which] |= (chunk[starts[which] + at] & 0x7F).astype(np.uint64) << np.uint64(7 * at)
    return numbers


def _in_range(spec: TensorSpec, numbers: Array) -> Array:
    """The numbers as the field has them, of which the parser keeps 32 or 64 bits. Raises `Reject`."""
    held: Array = numbers.astype(f"u{max(spec.element_bytes, 4)}").view(
        f"{spec.dtype.kind}{max(spec.element_bytes, 4)}"
    )
    limits = np.iinfo(spec.dtype)
    if held.min() < limits.min or held.max() > limits.max:
        raise out_of_range(spec)
    return held
