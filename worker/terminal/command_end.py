"""Ends a command with 0, or with the exit code of its `Stop`, and makes streams safe that others may close.

A `Stop` is reported in plain lines on standard error, and so is a failure of the system (a full disk, a name too long).
Any other failure is a defect and keeps its traceback. Owns nothing.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TextIO

import typer

from worker.core.failures import Incomplete, Stop
from worker.terminal.terminal import printable, tell

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_STDOUT, _STDERR = 1, 2


def end(act: Callable[[], int], *, imports_on: bool = False) -> NoReturn:
    """Call `act`, and exit with its code. `imports_on`: `act` goes on importing, and handles gc and Ctrl-C itself."""
    if not imports_on:
        gc.enable()
    try:
        with nullcontext() if imports_on else _unwinding():
            code = act()
            sys.stdout.flush()  # a full disk fails here, and is reported below
    except Stop as stop:
        for line in str(stop).splitlines():
            tell(printable(line))
        raise typer.Exit(stop.exit_code) from None
    except BrokenPipeError:
        _drop_stdout()  # its reader has enough
        raise typer.Exit(0) from None
    except (OSError, UnicodeError) as error:
        if imports_on:  # a worker's own failure, which needs its traceback
            raise
        tell(str(error))
        try:
            sys.stdout.flush()
        except OSError:
            _drop_stdout()  # else Python would try once more to write it, and end with 120
        raise typer.Exit(Incomplete.exit_code) from None
    raise typer.Exit(code)


@contextmanager
def _unwinding() -> Iterator[None]:
    """Let Ctrl-C unwind the command and end it with a line, unless SIGINT was ignored or handled before.

    Ctrl-C in a callback of a Kafka client counts, too: the client loses the exception, and raises `SystemError`.
    """
    interrupts: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> NoReturn:
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except (KeyboardInterrupt, SystemError) as error:
        if isinstance(error, SystemError) and not interrupts:
            raise
        tell("interrupted")
        raise typer.Exit(128 + signal.SIGINT) from None


def _drop_stdout() -> None:
    """Send standard output nowhere, as its reader left: else Python's end would fail on what it still holds (120)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_streams_safe() -> None:
    """Let no command end because standard output or error is closed (`>&-`) or unread, or standard error full."""
    for number, name in ((_STDOUT, "stdout"), (_STDERR, "stderr")):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:  # else the next socket would get its number
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:  # a lower number was free, too
                os.dup2(nowhere, number)
                os.close(nowhere)
            stream = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
        pipe = io.BufferedWriter(_Pipe(number, "wb", closefd=False))
        is_by_line = number == _STDERR or stream.isatty()
        setattr(sys, name, io.TextIOWrapper(pipe, stream.encoding, stream.errors, line_buffering=is_by_line))


def give_stdout_back() -> None:
    """Let a closed standard output raise, for a command that goes on until its reader has enough."""
    _Pipe.forgives_stdout = False


class _Pipe(io.FileIO):
    """Drops output that a closed pipe refuses (`--help | head -1`), and for standard error that a full disk refuses.

    Else typer and rich would end the process with 1, a defect's code, and Python with 120 for what it still holds.
    """

    forgives_stdout = True

    def write(self, content: Buffer) -> int:
        try:
            return super().write(content)
        except OSError as error:
            if self.fileno() == _STDERR or (isinstance(error, BrokenPipeError) and self.forgives_stdout):
                return memoryview(content).nbytes
            raise
