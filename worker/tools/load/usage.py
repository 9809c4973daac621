"""What processes have used so far: processor time and memory, asked of Linux from outside.

On other systems there are no such figures.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_PROCESSOR_TIME = 2  # of a whole process, all its threads, as `clock_getcpuclockid` numbers it


class Usage(NamedTuple):
    """Processor seconds, and the most memory that was resident at once, bytes; the sum over the processes."""

    cpu_seconds: float
    peak_bytes: int


def usage_of(processes: Iterable[int]) -> Usage | None:
    """Of running processes, by their ids. None where one has ended, or the system has no such figures."""
    found = [_usage(process) for process in processes]
    told = [usage for usage in found if usage is not None]
    if len(told) < len(found):
        return None
    return Usage(sum(usage.cpu_seconds for usage in told), sum(usage.peak_bytes for usage in told))


def _usage(process: int) -> Usage | None:
    try:
        # To the nanosecond, where /proc/<id>/stat counts in hundredths of a second.
        seconds = time.clock_gettime(~process << 3 | _PROCESSOR_TIME)
        peak = _PEAK.search(Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace"))
    except (OSError, AttributeError):
        return None
    return Usage(seconds, int(peak[1]) * 1024) if peak else None
