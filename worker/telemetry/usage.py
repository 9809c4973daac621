"""The memory and the processor time that a worker uses: its own process, and the one that has the model.

Reads `/proc` when it is asked, which takes some 20 µs. Any thread may ask. `host` is the id of the process that has the
model; None where there is none.
"""

from __future__ import annotations

import os
from pathlib import Path


def memory_used(host: int | None) -> int | None:
    """The resident memory of both processes, in bytes; None where the system has no `/proc`.

    Tensors in memory that both share count twice.
    """
    own, its = _read("self", "statm"), _read(host, "statm")
    return sum(int(said.split()[1]) for said in (own, its) if said) * os.sysconf("SC_PAGE_SIZE") if own else None


def processor_time(host: int | None) -> float:
    """The seconds of processor time of both processes, and of those that had the model before."""
    used = _read(host, "stat").rpartition(")")[2].split()[11:13]  # the command, in brackets, may hold blanks
    return sum(os.times()[:4]) + sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def _read(process: int | str | None, file: str) -> str:
    """The text of a process's file; empty where there is no such process."""
    try:
        return Path(f"/proc/{process}/{file}").read_text()
    except OSError:
        return ""
