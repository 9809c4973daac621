"""Avro's logical types that become values of Python: decimals, dates and instants, with all of their digits.

A UUID stays the text that it is. Times of day, durations and nanoseconds stay numbers or bytes: Python has nothing that
keeps all their digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact
from typing import Any

from worker.codecs.records.wanted import Unreadable

# More digits than any database takes; Python's time for a number grows with the square of its digits.
_MOST_DIGITS = 1_000
_MOST_BYTES = 416  # of a whole number with so many digits
_EXACT = Context(prec=_MOST_DIGITS + 2)
_TO_THE_LAST_DIGIT = Context(prec=_MOST_DIGITS + 2, traps=[Inexact])
_DAY = date(1970, 1, 1)
_INSTANT = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_INSTANT = datetime(1970, 1, 1)  # noqa: DTZ001  # a local time has no zone

Convert = Callable[[Any], Any]


def instant_of(seconds: int, micros: int) -> datetime:
    """The instant so long after the begin of 1970. Raises `OverflowError`."""
    return _INSTANT + timedelta(0, seconds, micros)


def decimal_of(unscaled: bytes, scale: int) -> Decimal:
    """The whole number of these bytes, divided by ten to the power of the scale. Raises `Unreadable`."""
    if len(unscaled) > _MOST_BYTES or not -_MOST_DIGITS <= scale <= _MOST_DIGITS:
        raise Unreadable(f"expected a decimal of at most {_MOST_DIGITS:,} digits")
    return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, _EXACT)


def _date(days: int) -> date:
    return _DAY + timedelta(days)


def _millis(millis: int) -> datetime:
    return _INSTANT + timedelta(0, 0, 0, millis)


def _micros(micros: int) -> datetime:
    return _INSTANT + timedelta(0, 0, micros)


def _local_millis(millis: int) -> datetime:
    return _LOCAL_INSTANT + timedelta(0, 0, 0, millis)


def _local_micros(micros: int) -> datetime:
    return _LOCAL_INSTANT + timedelta(0, 0, micros)


_OF_NUMBERS: Mapping[tuple[str, str], Convert] = {
    ("int", "date"): _date,
    ("long", "timestamp-millis"): _millis,
    ("long", "timestamp-micros"): _micros,
    ("long", "local-timestamp-millis"): _local_millis,
    ("long", "local-timestamp-micros"): _local_micros,
}


def converter(kind: str, given: Mapping[str, Any]) -> Convert | None:
    """The function that makes the value of a logical type; None where the number or the bytes are the value.

    As Avro says it, a logical type that is unknown or wrong counts as none.
    """
    name = given["logicalType"]
    if name != "decimal" or kind not in ("bytes", "fixed"):
        return _OF_NUMBERS.get((kind, name))
    scale = given.get("scale", 0)
    if not isinstance(scale, int) or scale < 0:
        return None
    return lambda unscaled: decimal_of(unscaled, scale)


def unconverter(definition: Mapping[str, Any], given: Mapping[str, Any]) -> Convert | None:
    """The counterpart of `converter` for the type of this definition."""
    kind, name = definition["type"], given["logicalType"]
    if converter(kind, given) is None:
        return None
    if name == "date":
        return lambda day: (day - _DAY).days
    if name != "decimal":
        since = _LOCAL_INSTANT if name.startswith("local") else _INSTANT
        unit = timedelta(0, 0, 0, 1) if name.endswith("millis") else timedelta(0, 0, 1)
        return lambda instant: (instant - since) // unit
    scale, size = given.get("scale", 0), definition.get("size")

    def unscaled(value: Decimal) -> bytes:
        whole = int(value.scaleb(scale, _EXACT).to_integral_exact(context=_TO_THE_LAST_DIGIT))
        return whole.to_bytes(size or (whole + (whole < 0)).bit_length() // 8 + 1, "big", signed=True)

    return unscaled
