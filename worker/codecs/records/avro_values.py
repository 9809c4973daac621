"""Reads and skips Avro's primitive values. A function that finds too few bytes may return a place past the end."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from worker.codecs.records.wanted import Unreadable

Read = Callable[[bytes, int], tuple[Any, int]]
Skip = Callable[[bytes, int], int]

ENDS_EARLY = "the value ends too early"
_LONGEST_NUMBER, _MOST_NUMBER_BYTES = 64, 10  # bits; bytes of seven bits
_TOO_LONG = f"expected a number of at most {_LONGEST_NUMBER} bits"


def number(value: bytes, at: int) -> tuple[int, int]:
    """An int or a long: seven bits a byte, the lowest ones first, and the sign in the lowest bit."""
    folded = value[at]
    at += 1
    if folded > 127:
        folded, at = rest_of_number(value, at, folded & 127)
    return (folded >> 1) ^ -(folded & 1), at


def rest_of_number(value: bytes, at: int, folded: int) -> tuple[int, int]:
    """A number of several bytes, of which the first one has been read."""
    for shift in range(7, _LONGEST_NUMBER, 7):
        byte = value[at]
        at += 1
        folded |= (byte & 127) << shift
        if byte < 128:
            if folded >> _LONGEST_NUMBER:
                break
            return folded, at
    raise Unreadable(_TOO_LONG)


def size_of(value: bytes, at: int) -> tuple[int, int]:
    size, at = number(value, at)
    if size < 0:
        raise Unreadable("expected a length, got a negative one")
    return size, at


def bytes_of(value: bytes, at: int) -> tuple[bytes, int]:
    size, at = size_of(value, at)
    end = at + size
    return value[at:end], end


def text(value: bytes, at: int) -> tuple[str, int]:
    size = value[at]
    if size & 129:  # negative, or of several bytes
        size, at = size_of(value, at)
    else:
        at += 1
        size >>= 1
    end = at + size
    return value[at:end].decode(), end


def _null(value: bytes, at: int) -> tuple[None, int]:  # noqa: ARG001  # a `Read`
    return None, at


def boolean(value: bytes, at: int) -> tuple[bool, int]:
    byte = value[at]
    if byte > 1:
        raise Unreadable("expected a boolean")
    return byte == 1, at + 1


_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
unpack_float, unpack_double = _FLOAT.unpack_from, _DOUBLE.unpack_from


def _float(value: bytes, at: int) -> tuple[float, int]:
    return unpack_float(value, at)[0], at + 4


def _double(value: bytes, at: int) -> tuple[float, int]:
    return unpack_double(value, at)[0], at + 8


def _skip_number(value: bytes, at: int) -> int:
    return number(value, at)[1]


def _skip_bytes(value: bytes, at: int) -> int:
    size, at = size_of(value, at)
    return at + size


def skipping(size: int) -> Skip:
    return lambda _, at: at + size


READS: Mapping[str, Read] = {
    "null": _null,
    "boolean": boolean,
    "int": number,
    "long": number,
    "float": _float,
    "double": _double,
    "bytes": bytes_of,
    "string": text,
}
SIZES: Mapping[str, int] = {"null": 0, "boolean": 1, "float": 4, "double": 8}
SKIPS: Mapping[str, Skip] = {
    **{kind: skipping(size) for kind, size in SIZES.items()},
    **dict.fromkeys(("int", "long"), _skip_number),
    **dict.fromkeys(("bytes", "string"), _skip_bytes),
}


# Many numbers at once: (value, at, count) ─▶ (the numbers, where the next value begins)
Column = Callable[[bytes, int, int], tuple[Sequence[Any], int]]


def _floats(form: str, size: int) -> Column:
    def read(value: bytes, at: int, count: int) -> tuple[Sequence[Any], int]:
        end = at + count * size
        if end > len(value):
            raise Unreadable(ENDS_EARLY)
        return struct.unpack_from(f"<{count}{form}", value, at), end

    return read


_FEW = 64  # numbers that are read one by one as fast (2026-11)
_MANY = 65_536  # numbers of one go, whose arrays take 4 MB


def _numbers(value: bytes, at: int, count: int) -> tuple[Sequence[Any], int]:
    """So many ints or longs, as `number` reads one, but faster from some tens of them on."""
    numbers: list[int] = []
    if count < _FEW:
        for _ in range(count):
            one, at = number(value, at)
            numbers.append(one)
        return numbers, at
    for begin in range(0, count, _MANY):
        some, at = _many_numbers(value, at, min(_MANY, count - begin))
        numbers += some
    return numbers, at


def _many_numbers(value: bytes, at: int, count: int) -> tuple[list[int], int]:
    if at + count > len(value):
        raise Unreadable(ENDS_EARLY)
    raw = np.frombuffer(value, np.uint8, min(len(value) - at, count * _MOST_NUMBER_BYTES), at)
    ends = np.flatnonzero(raw < 128)[:count] + 1
    if len(ends) < count:
        raise Unreadable(ENDS_EARLY)
    sizes = np.diff(ends, prepend=0)
    if sizes.max() > _MOST_NUMBER_BYTES or (raw[ends[sizes == _MOST_NUMBER_BYTES] - 1] > 1).any():
        raise Unreadable(_TOO_LONG)
    starts = ends - sizes
    bits = (raw[: ends[-1]] & 127).astype(np.uint64)
    bits <<= ((np.arange(ends[-1]) - np.repeat(starts, sizes)) * 7).astype(np.uint64)
    folded = np.bitwise_or.reduceat(bits, starts)
    signed = (folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64)
    return signed.tolist(), at + int(ends[-1])


COLUMNS: Mapping[str, Column] = {
    "int": _numbers,
    "long": _numbers,
    "float": _floats("f", 4),
    "double": _floats("d", 8),
}
