"""How a worker ended: logged once, with the exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from worker.core.failures import BadConfiguration, Stop

# What a failed worker gives the broker to take what was already sent, and a lane to end. It commits nothing any more.
GIVE_UP_TIMEOUT = 1.0


class Events(Protocol):
    def stopped(self, exit_code: int, why: str) -> None: ...


@dataclass(slots=True)
class ProcessEnd:
    """The process's exit code, set when the worker has ended."""

    exit_code: int = 0


@contextmanager
def logged_end(events: Events) -> Iterator[ProcessEnd]:
    """Log how the worker ended, once. What keeps it from starting is left to the caller."""
    end = ProcessEnd()
    try:
        yield end
        events.stopped(0, "asked to; everything taken is answered and committed")
    except BadConfiguration:
        raise
    except Stop as stop:
        end.exit_code = stop.exit_code
        events.stopped(stop.exit_code, str(stop))
