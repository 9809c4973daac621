"""Guards against numbers and files that others wrote: a client with the right to write may leave anything there."""

from __future__ import annotations

import struct
import tokenize
import zipfile

# Kafka's numbers have 63 bits. Python takes some time for a number of thousands of digits, and refuses one of 4,301.
MOST_DIGITS = 18

# The errors that numpy and zipfile raise for damaged files of arrays (found by changing bytes at random). numpy parses
# a header as Python, so a header that is not Python can raise any of Python's own errors.
DAMAGED = (
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    EOFError,
    OSError,
    SyntaxError,
    tokenize.TokenError,
    RecursionError,
    MemoryError,
    struct.error,
    zipfile.BadZipFile,
    NotImplementedError,
)


def whole_number(text: bytes, most_digits: int = MOST_DIGITS) -> int | None:
    """The number that the text is; None unless it has decimal digits only, and at most `most_digits` of them."""
    return int(text) if text.isdigit() and len(text) <= most_digits else None
