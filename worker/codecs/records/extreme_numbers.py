"""Finds JSON texts that take long to read for their size, because of very large or very small numbers.

msgspec reads a number in 0.05 µs, and one such as 1e300 or 1e-310 in 15 µs: a text of 1 MiB may hold 170,000 of them,
and takes 2.5 s (msgspec 0.22, 2026-11). Exponents from 200 on are counted, since digits before or behind the point may
add to them. A number without an exponent needs 300 digits to be as slow, so that 1 MiB of these takes 50 ms.
"""

from __future__ import annotations

import re
from itertools import chain, islice

# More of them are refused: these take 15 ms. Numbers that stand for "none", such as 1.7976931348623157e308, are fewer.
MOST_EXTREMES = 1_000
# Bytes of a text in which they are counted. In a shorter one they take 40 ms at most, and to look takes as long as to
# read a usual one.
LOOKED_AT_FROM = 16_384

# Each begins with one byte, which is found in 0.1 ns for each other byte.
_EXTREMES = [re.compile(sign + rb"[-+]?0*+[23][0-9]{2}[\s,\]}]") for sign in (b"e", b"E")]


def has_too_many(text: bytes | memoryview) -> bool:
    """True if the text has more extreme numbers than are read."""
    if len(text) < LOOKED_AT_FROM:
        return False
    found = chain.from_iterable(extreme.finditer(text) for extreme in _EXTREMES)
    return next(islice(found, MOST_EXTREMES, None), None) is not None
