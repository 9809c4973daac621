"""Numbers and files that others wrote: any client with the right to write may have left anything there."""

from __future__ import annotations

import struct
import tokenize
import zipfile

# Kafka's numbers have 63 bits. Python takes some time for a number of thousands of digits, and refuses one of 4,301.
MOST_DIGITS = 18

# numpy and zipfile raise these for files of arrays that are damaged, by chance or by design (found by changing bytes at
# random). A header is parsed as Python, so one that is not Python fails in any of Python's ways.
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
    """The number that so many decimal digits are at most; None for anything else."""
    return int(text) if text.isdigit() and len(text) <= most_digits else None
