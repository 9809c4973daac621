"""Reads and skips Avro's types that hold others, by the functions of those.

An error names the way to the field, and what was expected there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from worker.codecs.records.avro_logical import Convert
from worker.codecs.records.avro_schema import Type
from worker.codecs.records.avro_values import ENDS_EARLY, Column, Read, Skip, number, size_of, text
from worker.codecs.records.wanted import Budget, Unreadable, within

Went = TypeVar("Went")

ERRORS = (Unreadable, IndexError, struct.error, UnicodeDecodeError, OverflowError, RecursionError)
_WHY: Mapping[type[Exception], str] = {
    UnicodeDecodeError: "expected a text in UTF-8",
    OverflowError: "expected an instant of the years 1 to 9999",
    RecursionError: "nested too deeply",
}

_BLOCK = 2  # values of the budget that a block is in itself
_ONE_BYTE = 64  # indexes below this are one byte, which is twice the index


def why(error: Exception) -> str:
    return _WHY.get(type(error), ENDS_EARLY)


class Step(NamedTuple):
    """A field: its name, its key if it is wanted, its type, and the function that reads it or goes over it."""

    name: str
    key: str | None
    kind: Type
    go: Callable[[bytes, int], Any]


def record(steps: Sequence[Step]) -> Read:
    """The function that reads a record of these fields, as `avro_compiled.py` makes it for a few hundred of them."""

    def read(value: bytes, at: int) -> tuple[dict[str, Any], int]:
        fields: dict[str, Any] = {}
        name = ""
        try:
            for name, key, _, go in steps:  # noqa: B007  # it is told where reading stops
                if key is None:
                    at = go(value, at)
                else:
                    fields[key], at = go(value, at)
        except ERRORS as error:
            raise within(f".{name}", error, why) from None
        return fields, at

    return read


def array(item: Read, values: int, budget: Budget) -> Read:
    """Reads items one by one; `values` is how many of the budget an item is."""

    def read(value: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        try:
            while True:
                count, at, _ = _block(value, at)
                if not count:
                    return items, at
                budget.take(_BLOCK + count * values)
                for _ in range(count):
                    one, at = item(value, at)
                    items.append(one)
        except ERRORS as error:
            raise within(f"[{len(items)}]", error, why) from None

    return read


def array_of_numbers(column: Column, budget: Budget) -> Read:
    """Reads all numbers of a block at once, so they cost nothing of the budget."""

    def read(value: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at, _ = _block(value, at)
            if not count:
                return items, at
            budget.take(_BLOCK)
            numbers, at = column(value, at, count)
            items += numbers

    return read


def map_of(inner: Read, values: int, budget: Budget) -> Read:
    def read(value: bytes, at: int) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        while True:
            count, at, _ = _block(value, at)
            if not count:
                return items, at
            budget.take(_BLOCK + count * (1 + values))
            for _ in range(count):
                key, at = text(value, at)
                try:
                    items[key], at = inner(value, at)
                except ERRORS as error:
                    raise within("[…]", error, why) from None

    return read


def items_skip(skip: Skip, size: int | None, values: int, budget: Budget) -> Skip:
    """Goes over an array or a map: by the bytes that a block says it has, or by the `size` of items that have one."""

    def skip_all(value: bytes, at: int) -> int:
        while True:
            count, at, length = _block(value, at)
            if not count:
                return at
            if length is None and size is not None:
                length = count * size
            budget.take(_BLOCK + (0 if length is not None else count * values))
            if length is not None:
                at += length
            else:
                for _ in range(count):
                    at = skip(value, at)

    return skip_all


def _block(value: bytes, at: int) -> tuple[int, int, int | None]:
    """How many items follow, where they begin, and how many bytes they are if the block says it."""
    count, at = number(value, at)
    if count >= 0:
        return count, at, None
    length, at = size_of(value, at)
    return -count, at, length


def union(branches: Sequence[Callable[[bytes, int], Went]]) -> Callable[[bytes, int], Went]:
    """The function that goes on with the branch which a value names: reading, or going over it, as the branches do."""
    by_byte = {index << 1: branch for index, branch in enumerate(branches[:_ONE_BYTE])}

    def go(value: bytes, at: int) -> Went:
        branch = by_byte.get(value[at])
        if branch is not None:
            return branch(value, at + 1)
        index, at = _index(value, at, len(branches), "a branch of the union")
        return branches[index](value, at)

    return go


def enum(symbols: Sequence[str]) -> Read:
    by_byte = {index << 1: symbol for index, symbol in enumerate(symbols[:_ONE_BYTE])}

    def read(value: bytes, at: int) -> tuple[str, int]:
        symbol = by_byte.get(value[at])
        if symbol is not None:
            return symbol, at + 1
        index, at = _index(value, at, len(symbols), "a symbol of the enum")
        return symbols[index], at

    return read


def _index(value: bytes, at: int, count: int, of: str) -> tuple[int, int]:
    index, at = number(value, at)
    if not 0 <= index < count:
        raise Unreadable(f"expected {of}, got an index that it has not")
    return index, at


def fixed(size: int) -> Read:
    return lambda value, at: (value[at : at + size], at + size)


def converted(read: Read, convert: Convert) -> Read:
    def read_converted(value: bytes, at: int) -> tuple[Any, int]:
        plain, at = read(value, at)
        return convert(plain), at

    return read_converted


def all_of(skips: Sequence[Skip]) -> Skip:
    def skip(value: bytes, at: int) -> int:
        for each in skips:
            at = each(value, at)
        return at

    return skip
