"""The live page's own paths: its files, as they lie beside this module, and `/status`.

A file is read once, when it is first asked for. The answers to all of it are values; the server sends them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from importlib.resources import files

from worker.telemetry.metrics.metric_values import Snapshot
from worker.telemetry.page.status import Deployment, status

STATUS = "/status"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


class LivePage:
    """What a browser gets. `dead` says why a snapshot's worker counts as dead, `clock` is the loop's."""

    def __init__(
        self,
        deployment: Deployment,
        latest: Callable[[], Snapshot],
        dead: Callable[[Snapshot], str | None],
        clock: Callable[[], float],
        date: Callable[[], float] = time.time,
    ) -> None:
        self._deployment = deployment
        self._latest = latest
        self._dead = dead
        self._clock = clock
        self._date = date

    def answer(self, path: str) -> tuple[bytes, str] | None:
        """The content and its type; None for a path that is not the page's."""
        if path == STATUS:
            return self._status(), "application/json"
        if path not in FILES:
            return None
        name, content_type = FILES[path]
        return _content(name), content_type

    def _status(self) -> bytes:
        snapshot = self._latest()
        values = status(snapshot, self._deployment, self._dead(snapshot), self._clock(), self._date())
        return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()


@cache
def _content(name: str) -> bytes:
    return (files("worker.telemetry.page") / name).read_bytes()
