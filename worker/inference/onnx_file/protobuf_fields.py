"""Protobuf's wire format, as far as the file of a model is read: which fields a message has, and where.

Strict: what a parser would refuse is refused. Nothing is copied, so what is passed over, as weights are, costs nothing.
And how one field is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

VARINT, _FIXED64, LENGTH, _GROUP, _END_OF_GROUP, _FIXED32 = range(6)
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT = 10  # bytes
# What follows the tag of a number.
_ONE_NUMBER = {VARINT: rb"[\x80-\xff]{0,9}[\x00-\x7f]", _FIXED64: rb".{8}", _FIXED32: rb".{4}"}
UINT32 = 0xFFFFFFFF


# One field of a message: its number, its wire type, the number that its content is or has for a length, and where the
# content begins and ends. A plain tuple: large graphs have a million of them.
Field = tuple[int, int, int, int, int]


class Malformed(Exception):  # what the message is
    """This is no protobuf message."""


def fields(message: bytes, begin: int, end: int, *, each: int = 0) -> Iterator[Field]:
    """Those between two places, in their order. Raises `Malformed`. Groups are stepped over: ONNX has none.

    Of numbers of one field, one behind the other, only the first is sure to come, but for the field `each`.
    """
    groups: list[int] = []
    while begin < end:
        tag, start = _varint(message, begin, end)
        number, wire_type = (tag & UINT32) >> 3, tag & 7
        if wire_type == _GROUP:
            groups.append(number)
            begin = start
        elif wire_type == _END_OF_GROUP:
            if not groups or groups.pop() != number:
                raise Malformed
            begin = start
        else:
            value, start, begin = _content(message, wire_type, start, end)
            if not groups:
                yield number, wire_type, value, start, begin
            if begin < end and message[begin] == tag < 0x80 and wire_type in _ONE_NUMBER and number != each:
                begin = _end_of_run(message, begin, end, tag, wire_type)
    if groups or begin > end:
        raise Malformed


def as_field(number: int, content: int | bytes) -> bytes:
    """The field of that number with this content, as a message has it."""
    if isinstance(content, int):
        return _as_varint(number << 3 | VARINT) + _as_varint(content)
    return _as_varint(number << 3 | LENGTH) + _as_varint(len(content)) + content


def _as_varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def _end_of_run(message: bytes, begin: int, end: int, tag: int, wire_type: int) -> int:
    """Behind further numbers of the same field: a forest of trees has millions, each a field of its own."""
    found = _run(tag, wire_type).match(message, begin, end)
    return found.end() if found else begin


@cache
def _run(tag: int, wire_type: int) -> re.Pattern[bytes]:
    """Numbers with this tag, one behind the other."""
    return re.compile(b"(?:" + re.escape(bytes([tag])) + _ONE_NUMBER[wire_type] + b")*+", re.DOTALL)


def _content(message: bytes, wire_type: int, start: int, end: int) -> tuple[int, int, int]:
    """The number that a field's content is, or that says its length; where the content begins and ends."""
    if wire_type == VARINT:
        value, stop = _varint(message, start, end)
        return value, start, stop
    if wire_type == LENGTH:
        value, start = _varint(message, start, end)
    elif wire_type in _FIXED_BYTES:
        value = _FIXED_BYTES[wire_type]
    else:
        raise Malformed
    if start + value > end:
        raise Malformed
    return value, start, start + value


def _varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that begins here, and where it ends."""
    if at < end and (byte := message[at]) < 0x80:  # as most are
        return byte, at + 1
    value = 0
    for position in range(at, min(end, at + _LONGEST_VARINT)):
        byte = message[position]
        value |= (byte & 0x7F) << 7 * (position - at)
        if byte < 0x80:
            return value, position + 1
    raise Malformed
