"""The wire form of protobuf, as far as an ONNX model is changed here: fields by number, and their bytes.

A message is a row of fields. Fields that are not looked into stay as bytes, so unknown ones are kept, and no tensor is
read or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_SIZES = {FIXED64: 8, FIXED32: 4}


class WireField(NamedTuple):
    """One field of a message: its value if it is a whole number, its content if it is bytes; `whole`: all its bytes."""

    number: int
    value: int
    content: memoryview
    whole: memoryview


_NOTHING = memoryview(b"")


def fields(content: memoryview) -> Iterator[WireField]:
    """The fields of a message. Raises `ValueError` or `IndexError` if it is none."""
    at, end = 0, len(content)
    while at < end:
        start = at
        tag, at = _varint(content, at)
        kind, value, inner = tag & 7, 0, _NOTHING
        if kind == VARINT:
            value, at = _varint(content, at)
        elif kind == LENGTH:
            size, at = _varint(content, at)
            inner, at = content[at : at + size], at + size
        elif kind in _SIZES:
            at += _SIZES[kind]
        else:
            raise ValueError(f"a field of kind {kind}")
        if at > end:
            raise ValueError("a message that was cut short")
        yield WireField(tag >> 3, value, inner, content[start:at])


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a whole number of more than 64 bits")


def number(field: int, value: int) -> bytes:
    """A field with this whole number, which is not negative."""
    return _written(field << 3 | VARINT) + _written(value)


def message(field: int, *parts: bytes | memoryview | str) -> bytes:
    """A field with these bytes, or the fields of a message, one after the other."""
    content = b"".join([part.encode() if isinstance(part, str) else part for part in parts])
    return head(field, len(content)) + content


def head(field: int, size: int) -> bytes:
    """The begin of a field of so many bytes."""
    return _written(field << 3 | LENGTH) + _written(size)


def text(content: memoryview) -> str:
    return str(content, "utf-8")


def size_of(parts: Iterable[bytes | memoryview]) -> int:
    return sum(map(len, parts))


def _written(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
