"""How a command ends: 0, or the exit code of the `Stop` that ended it.

A failure that has a name is said in plain lines on stderr, and so is what the system or a terminal's text would not do
for a command (a full disk, a name too long); any other is a defect and keeps its traceback. Owns nothing.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import NoReturn

import typer

from worker.core.failures import Incomplete, Stop


def end(act: Callable[[], int], *, imports_on: bool = False) -> NoReturn:
    """Call it and exit as it says. `imports_on`: it goes on importing, and sees to gc and Ctrl-C itself."""
    if not imports_on:
        gc.enable()
    try:
        with nullcontext() if imports_on else _unwinding():
            code = act()
            sys.stdout.flush()  # what a full disk does not take is said below
    except Stop as stop:
        from worker.terminal.terminal import printable, tell  # noqa: PLC0415 - rich takes its time

        for line in str(stop).splitlines():
            tell(printable(line))
        raise typer.Exit(stop.exit_code) from None
    except BrokenPipeError:
        _drop_stdout()  # its reader has enough
        raise typer.Exit(0) from None
    except (OSError, UnicodeError) as error:
        if imports_on:  # a worker's own affair, which is to be looked into
            raise
        from worker.terminal.terminal import tell  # noqa: PLC0415 - rich takes its time

        tell(str(error))
        _drop_what_is_left()
        raise typer.Exit(Incomplete.exit_code) from None
    raise typer.Exit(code)


@contextmanager
def _unwinding() -> Iterator[None]:
    """From here on Ctrl-C unwinds, unless `__main__` was told otherwise, and ends the command with a line.

    Also where a callback of a Kafka client is interrupted: the client loses the exception and says that it has one.
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
        from worker.terminal.terminal import tell  # noqa: PLC0415 - rich takes its time

        tell("interrupted")
        raise typer.Exit(128 + signal.SIGINT) from None


def _drop_what_is_left() -> None:
    """Python would try once more to write it, and end with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_stdout()


def _drop_stdout() -> None:
    """It is read no more. What Python still holds for it goes nowhere, or its own end would fail (120)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
