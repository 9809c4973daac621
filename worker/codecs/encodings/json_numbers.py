"""The numbers of a large JSON request, taken out of its text before the rest is parsed.

    {"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[0.5, 1], [2, 3]]}]}
    {"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": "\\u00010"}]}          the frame
                                                                            [[0.5, 1], [2, 3]]    numbers 0

A parser makes an array of 100 bytes of each `[],` and takes 80 ns for it. Without its numbers a request is
short, so the frame may be refused by its length. The numbers are read once their shape is judged: nested ones without
an array for each row, all in chunks, so that they take no more memory than their tensor and the text.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from worker.codecs.encodings.elements import check_count, half_floats, out_of_range, pack
from worker.core.failures import Reject
from worker.core.records import Array, Tensor
from worker.core.tensors.specs import TensorSpec

_DATA = re.compile(rb'"data"[ \t\n\r]*+:[ \t\n\r]*+(?=\[)')
_NAME = re.compile(rb'"[^"\\]*+"[ \t\n\r]*+:')
# Members named `data` that mean nothing, in parameters or outputs, may stand before those of the inputs.
_SPARE = 8
_SPACE = b" \t\n\r"
# One of these stands for numbers in the frame. JSON has one spelling for each, so a value without it holds no other.
# More than one, for there are honest strings with the first: FIX ends its fields with it.
_MARKS = ((b"\\u0001", "\x01"), (b"\\u0002", "\x02"), (b"\\u0010", "\x10"))
_CHUNK = 32 * 1024  # bytes of text parsed at once: some 16,000 numbers, of 24 to 50 bytes each on the way
# A number for every other byte, at least; a text that is longer is counted before it is parsed.
_LONGEST_NUMBER = 32


class Frame(NamedTuple):
    """A JSON text without its numbers, and the texts of these, in their order.

    Nothing of a number's text has been looked at but that no quote and no brace is in it.
    """

    text: bytes
    numbers: Mapping[str, bytes]


def frame_of(head: bytes, most: int) -> Frame:
    """The head without the numbers of its members named `data`, as many as a request with so many inputs may have."""
    is_escaped = b"\\" in head  # a single byte is found ten times as fast
    free = [mark for mark in _MARKS if not (is_escaped and mark[0] in head)]
    if not free:
        return Frame(head, {})
    written, mark = free[0]
    kept: list[bytes] = []
    numbers: dict[str, bytes] = {}
    end = 0
    for start, stop in _places(head, most + _SPARE):
        kept += (head[end:start], b'"%b%d"' % (written, len(numbers)))
        numbers[f"{mark}{len(numbers)}"] = head[start:stop]
        end = stop
    return Frame(b"".join([*kept, head[end:]]), numbers)


def _places(head: bytes, most: int) -> Iterator[tuple[int, int]]:
    """Where the arrays begin and end in which no string and no object is."""
    at = 0
    for _ in range(most):
        found = _DATA.search(head, at)
        if found is None:
            return
        start = found.end()
        quote = head.find(b'"', start)
        at = len(head) if quote < 0 else quote
        brace = head.find(b"}", start, at)
        at = at if brace < 0 else brace
        text = head[start:at].rstrip(b"," + _SPACE)
        # Of `[[1], "a"]` only a part has no string in it: behind the whole come a brace or the next member's name.
        if text.endswith(b"]") and (head[at : at + 1] != b'"' or _NAME.match(head, at)):
            yield start, start + len(text)


def elements(text: bytes, spec: TensorSpec, shape: Sequence[int], count: int) -> Tensor:
    """The elements of these numbers, strictly. Raises `Reject`."""
    _check_kind(text, spec)
    if text.find(b"[", 1) >= 0:
        text = _flat(text, spec, shape, count)
    elif not count * 2 <= len(text) <= count * _LONGEST_NUMBER:
        check_count(spec, shape, count, text.count(b",") + 1)
    if len(text) > _CHUNK:
        return _in_chunks(text, spec, shape, count)
    values = _values(text, spec)
    check_count(spec, shape, count, len(values))
    packed, _ = _written(values, spec, _writer(text, spec))
    return packed


def _in_chunks(text: bytes, spec: TensorSpec, shape: Sequence[int], count: int) -> Array:
    found: Array = np.empty(count, spec.dtype)
    have, write = 0, _writer(text, spec)
    for chunk in _chunks(text):
        values = _values(chunk, spec)
        start, have = have, have + len(values)
        if have > count:
            check_count(spec, shape, count, text.count(b",") + 1)
        packed, write = _written(values, spec, write)
        found[start:have] = np.frombuffer(packed, spec.dtype)
    check_count(spec, shape, count, have)
    return found


_WORDS = ((b"t", "a boolean"), (b"f", "a boolean"), (b"n", "null"))
_FRACTIONS = ((b".", "a fraction"), (b"e", "a fraction"), (b"E", "a fraction"))
_DIGITS = tuple((b"%d" % digit, "a number") for digit in range(10))
_NO_NUMBERS = ("NaN", "Infinity")
NO_UTF8 = "it is not UTF-8"
# The text of other elements has one of these in it.
_ODD = {
    "f": _WORDS,
    "i": (*_WORDS, *_FRACTIONS),
    "u": (*_WORDS, *_FRACTIONS),
    "b": (_WORDS[2], *_DIGITS),
}


def _check_kind(text: bytes, spec: TensorSpec) -> None:
    """By the letters that are in it, which takes no longer than to read it over. Raises `Reject`."""
    if spec.datatype == "FP16":
        raise half_floats(spec)
    if spec.is_text:
        raise Reject(f"input {spec.name}: expected BYTES elements, got an array without strings")
    for letter, name in _ODD[spec.dtype.kind]:
        if letter in text:
            got = "Infinity" if b"Infinity" in text else name  # which has a t, an f and an n, as the words have
            raise Reject(f"input {spec.name}: expected {spec.datatype} elements, got {got} among them")


_NUMBERS = b"0123456789+-.eEtruefalsn"


def _flat(text: bytes, spec: TensorSpec, shape: Sequence[int], count: int) -> bytes:
    """The text without its inner brackets. Raises `Reject` unless they stand where the shape says."""
    inner = list(shape)
    while len(inner) > 1 and inner[0] == 1 and text[:1] == b"[" and text[-1:] == b"]":  # of one there is no end to find
        text = text[1:-1].strip(_SPACE)
        inner.pop(0)
    if not _is_nested(text, inner, count):
        raise Reject(f"input {spec.name}: `data` is not nested as shape {list(shape)} says")
    if len(inner) == 1:
        return text
    # Without a table where brackets are few: to go from one to the next is faster than to look at each byte.
    if len(text) > 64 * math.prod(inner[:-1]):
        return b"[%b]" % text.replace(b"[", b"").replace(b"]", b"")
    return b"[%b]" % text.translate(None, b"[]")


def _is_nested(text: bytes, shape: Sequence[int], count: int) -> bool:
    if text[:1] != b"[" or text[-1:] != b"]":
        return False
    if len(shape) == 1:
        return text.find(b"[", 1) < 0 and text.find(b"]") == len(text) - 1
    brackets = text.translate(None, _NUMBERS + _SPACE)
    arrays = sum(math.prod(shape[:axis]) for axis in range(len(shape)))
    if len(brackets) != 2 * arrays + count - 1 or brackets != _brackets(shape):
        return False
    del brackets
    return _stand_apart(text) or _stand_apart(text.translate(None, _SPACE))


def _brackets(shape: Sequence[int]) -> bytes:
    inner = b""
    for dimension in reversed(shape):
        inner = b"[%b%b]" % ((inner + b",") * (dimension - 1), inner)
    return inner


def _stand_apart(text: bytes) -> bool:
    """Whether no number touches the outer side of a bracket: without it, it would still be one."""
    codes = np.frombuffer(text, np.uint8)
    for at in range(0, len(text), _CHUNK):
        chunk = codes[at : at + _CHUNK]
        before = codes[np.flatnonzero(chunk == _OPEN) + (at - 1)][1 if at == 0 else 0 :]
        behind = codes[1:][np.flatnonzero(chunk[: len(codes) - 1 - at] == _CLOSE) + at]
        if not ((before == _OPEN) | (before == _COMMA)).all() or not ((behind == _CLOSE) | (behind == _COMMA)).all():
            return False
    return True


_OPEN, _CLOSE, _COMMA = b"[],"


def _chunks(text: bytes) -> Iterator[bytes]:
    """The array, cut at commas into arrays that are not long."""
    at, end = 1, len(text) - 1
    while at <= end:
        stop = text.find(b",", at + _CHUNK, end)
        stop = end if stop < 0 else stop
        yield b"[%b]" % text[at:stop]
        at = stop + 1


def _values(text: bytes, spec: TensorSpec) -> list[Any]:
    try:
        values: list[Any] = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Reject(f"input {spec.name}: `data` is not JSON: {fault_of(error)}") from None
    if not values:
        raise Reject(f"input {spec.name}: an element of `data` is missing")
    return values


def fault_of(error: orjson.JSONDecodeError) -> str:
    """The fault, without its place. Python's own `json`, for one, writes NaN and Infinity."""
    if "surrogates" in error.msg:  # said of any bytes that are no UTF-8
        return NO_UTF8
    odd = next((word for word in _NO_NUMBERS if error.doc.startswith(word, error.pos)), None)
    return f"JSON has no {odd}" if odd else error.msg


def _writer(text: bytes, spec: TensorSpec) -> str:
    """The datatype as which the values are packed: whole numbers for floats take half the time so."""
    is_whole = spec.is_float and b"." not in text and b"e" not in text and b"E" not in text
    return "INT64" if is_whole else spec.datatype


def _written(values: list[Any], spec: TensorSpec, datatype: str) -> tuple[bytes, str]:
    """The elements, and the datatype as which they could be packed."""
    try:
        packed = pack(datatype, values)
    except (struct.error, OverflowError):
        if datatype == spec.datatype:
            raise out_of_range(spec) from None
        return _written(values, spec, spec.datatype)  # of over 63 bits
    if datatype != spec.datatype:
        # By way of doubles, as `struct` does it: no number is rounded in another way.
        packed = np.frombuffer(packed, "<i8").astype("<f8").astype(spec.dtype).tobytes()
    return packed, datatype
