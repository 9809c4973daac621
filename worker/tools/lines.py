"""Reads the lines of a file or a pipe. It reports when a pipe is silent, so that the caller can do its other work."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

from worker.core.failures import BadConfiguration, Incomplete

BLOCK = 1024 * 1024  # bytes of one read
LONGEST = 100 * BLOCK  # no broker takes more as one record
GLANCE = 0.05  # seconds


def lines(descriptor: int, name: str, glance: float = GLANCE) -> Iterator[bytes | None]:
    """Yields the lines without their ends, and None whenever a pipe is silent for `glance` seconds.

    Raises `Incomplete` if it cannot be read, and `BadConfiguration` for a line that is too long.
    """
    rest, block = b"", b"more"
    while block:
        # A file is always ready. A pipe is ready when bytes have come, or when its other end is closed.
        if not select.select([descriptor], [], [], glance)[0]:
            yield None
            continue
        try:
            block = os.read(descriptor, BLOCK)
        except OSError as error:
            raise Incomplete(f"{name}: cannot be read: {error.strerror}") from error
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
        if len(rest) > LONGEST:
            raise BadConfiguration(f"{name}: a line has more than {LONGEST} bytes")
    if rest:
        yield rest


def content(descriptor: int, name: str) -> bytes:
    """All that can be read there. Raises `Incomplete`."""
    try:
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    except OSError as error:
        raise Incomplete(f"{name}: cannot be read: {error.strerror}") from error
