"""The values that a function may put into an answer: numbers, texts, booleans, None, and lists and dicts of these.

Numpy's scalars and arrays become such values here, and so do subclasses. Then the worker's process gets nothing that it
cannot load or write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from worker.codecs.encodings.columns import in_json
from worker.inference.operator_file import Unfit

# Levels of lists and dicts. Pickle takes some 450, and a list that holds itself has no end.
DEEPEST = 50
SMALLEST, LARGEST = -(2**63), 2**64 - 1  # of whole numbers, which readers of JSON bound likewise
_KINDS = "biufUTO"  # of numpy's arrays: booleans, numbers, texts, and objects, which are judged one by one


class _Wrong(Exception):
    """A value that no answer can hold: what it is, and the steps to it, the last one first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.steps: list[str] = []


def plain_fields(given: Any, *, refuse_non_finite: bool) -> dict[str, Any]:
    """The fields of an answer as plain values. Raises `Unfit`, which names the field by its path and not its value."""
    if not isinstance(given, dict | Mapping):
        raise Unfit(f"{type(given).__name__}, and a dict is needed")
    try:
        return _fields(given, refuse_non_finite, 0)
    except _Wrong as wrong:
        where = "".join(reversed(wrong.steps)).removeprefix(".")
        raise Unfit(f"{wrong} in {where}" if where else str(wrong)) from None


def _fields(given: Mapping[Any, Any], strict: bool, level: int) -> dict[str, Any]:  # noqa: FBT001  # of all these
    plain = dict[str, Any]()
    for key, value in given.items():
        if not isinstance(key, str):
            raise _Wrong(f"{type(key).__name__} as the name of a field")
        try:
            plain[_text(key)] = _value(value, strict, level + 1)
        except _Wrong as wrong:
            wrong.steps.append(f".{key}")
            raise
    return plain


def _items(given: Iterable[Any], strict: bool, level: int) -> list[Any]:  # noqa: FBT001
    plain = list(given)
    if set(map(type, plain)) == {float} and all(map(isfinite, plain)):  # an embedding has hundreds
        return plain
    for at, value in enumerate(plain):
        try:
            plain[at] = _value(value, strict, level + 1)
        except _Wrong as wrong:
            wrong.steps.append(f"[{at}]")
            raise
    return plain


def _value(value: Any, strict: bool, level: int) -> Any:  # noqa: FBT001
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return _number(value, strict)
    if value is None:
        return None
    if level > DEEPEST:
        raise _Wrong(f"more than {DEEPEST} levels")
    if isinstance(value, dict | Mapping):
        return _fields(value, strict, level)
    if isinstance(value, list | tuple):
        return _items(value, strict, level)
    if isinstance(value, np.ndarray | np.generic):
        return _of_numpy(value, strict, level)
    raise _Wrong(type(value).__name__)


def _text(text: str) -> str:
    if type(text) is str and text.isascii():
        return text
    try:
        return str.encode(text).decode()  # of a subclass, too
    except UnicodeEncodeError:
        raise _Wrong("a text that UTF-8 cannot hold") from None


def _number(number: Any, strict: bool) -> Any:  # noqa: FBT001
    if isinstance(number, float):
        if strict and not isfinite(number):
            raise _Wrong("NaN or infinity")
        return float.__float__(number)
    if not SMALLEST <= number <= LARGEST:
        raise _Wrong("a whole number of more than 64 bits")
    return number if isinstance(number, bool) else int.__int__(number)


def _of_numpy(value: Any, strict: bool, level: int) -> Any:  # noqa: FBT001
    if value.dtype == np.float32 and np.isfinite(value).all():
        numbers = msgspec.json.decode(in_json(value))  # 0.1, where `tolist` gives 0.10000000149011612
        return numbers if value.ndim else numbers[0]
    kind, given = value.dtype.kind, value.tolist()
    if kind not in _KINDS or isinstance(given, np.generic):
        raise _Wrong(str(value.dtype))
    is_done = kind in "biu" or (kind == "f" and (not strict or bool(np.isfinite(value).all())))
    return given if is_done else _value(given, strict, level + 1)
