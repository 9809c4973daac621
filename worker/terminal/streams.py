"""Standard output and error of a command whose reader closed them, or reads no more, or whose disk is full."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


def stand_in_for_closed_streams() -> None:
    """What is written to a stream that was closed (`>&-`) goes nowhere. Its number would be the next socket's.

    Standard input stays closed: a command that would read it says so.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:  # a lower number was free, too
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as the process


class Forgiving(io.TextIOWrapper):
    """Standard output or error: what is read no more (`--help | head -1`) goes nowhere, and changes no exit code.

    typer and rich would end the process with 1, a defect's code, and Python with 120 for what it still holds.
    """

    def __init__(self, stands_for: TextIO) -> None:
        is_error = stands_for is sys.stderr
        kind = _Said if is_error else _Unread
        pipe = io.BufferedWriter(kind(stands_for.fileno(), "wb", closefd=False))
        super().__init__(pipe, stands_for.encoding, stands_for.errors, line_buffering=is_error or stands_for.isatty())
        self.stands_for = stands_for


class _Unread(io.FileIO):
    """Takes what a closed pipe does not."""

    def write(self, content: Buffer) -> int:
        """As if it were read."""
        try:
            return super().write(content)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return super().write(content)


class _Said(_Unread):
    """Takes what a full disk does not: that is said nowhere else, and what comes when there is room is."""

    def write(self, content: Buffer) -> int:
        """As if it were written."""
        try:
            return super().write(content)
        except OSError:
            return memoryview(content).nbytes


def give_stdout_back() -> None:
    """For a command that goes on until its reader has enough."""
    if isinstance(sys.stdout, Forgiving):
        sys.stdout = sys.stdout.stands_for
