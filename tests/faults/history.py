"""Everything that happened in a run, one JSON object a line, in the order in which it was noticed.

| event | says |
|---|---|
| `began`, `leg`, `replica`, `fault`, `fault_over`, `vitals` | what was done, to whom, and how the replicas were |
| `published` | request n is acknowledged at this offset |
| `answered`, `dead_letter` | what the checker read |
| `looked`, `judged` | what the group had committed, and that all below it was found answered |
| `broken` | a promise, and how |

`t` is seconds since the run began. Owns the file.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Value = Any  # what JSON can say


class History:
    """An open history. `write` may be called by any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w")
        self._lock = threading.Lock()
        self._began = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def write(self, event: str, **fields: Value) -> None:
        """One more line."""
        line = json.dumps({"t": round(self.now, 3), "event": event, **fields}, separators=(",", ":"))
        with self._lock:
            self._file.write(line + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._file.close()
