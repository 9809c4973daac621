"""All events of a run, one JSON object a line, in the order in which they were noticed.

| event | says |
|---|---|
| `began`, `leg`, `replica`, `fault`, `fault_over`, `vitals` | the deeds, their victims, and the replicas' measures |
| `published` | request n is acknowledged at this offset |
| `answered`, `dead_letter` | the records that the checker read |
| `looked`, `judged` | the group's commits, and that all below them was found answered |
| `broken` | a broken promise, and how |

`t` is seconds since the run began. Owns the file.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Value = Any  # any value that JSON can hold


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
        """Write one more line."""
        line = json.dumps({"t": round(self.now, 3), "event": event, **fields}, separators=(",", ":"))
        with self._lock:
            self._file.write(line + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._file.close()
