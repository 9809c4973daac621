"""How a file of arrays shows that it is damaged, whichever code reads it."""

from __future__ import annotations

import struct
import tokenize
import zipfile

# What numpy and zipfile raise for files that are damaged, by chance or by design (found by changing bytes at random). A
# header is parsed as Python: what is not has all of Python's ways to fail.
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
