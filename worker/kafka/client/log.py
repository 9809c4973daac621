"""The Kafka clients' own lines, passed on to a logger without flooding it.

librdkafka repeats itself: a broker that is away fails fifty connection attempts in two seconds. Each kind of line goes
through once, then at most every `REPEAT_EVERY` seconds with the number left out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from worker.core.secrets import without_login

REPEAT_EVERY = 10.0  # seconds: six lines a minute tell that a broker is still away

# Facilities that librdkafka logs as warnings and on which an operator cannot or need not act.
_QUIET = frozenset({"CONFWARN", "TERMINATE", "MOCK"})

# The markers of the last transaction are still being written. The client waits for them and asks again, every time.
_MARKERS_FACILITIES, _MARKERS = frozenset({"ADDOFFSETS", "ADDPARTS"}), "another concurrent operation on the same"


class ClientLog:
    """Has the shape of a logger that the clients call (`log`), and tells what the worker itself notices (`tell`)."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._quiet_until: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        self.last = ""  # the last that went wrong, for messages that must say why

    def log(self, level: int, _template: str, facility: str, _client: str, text: str) -> None:
        """Called by the client: `text` begins with the name of its thread, which names the broker it talks to."""
        if facility in _QUIET or (facility in _MARKERS_FACILITIES and _MARKERS in text):
            return
        thread, _, said = without_login(text).partition("]: ")
        # A connection that the broker closed is logged at level info, and may be all there is to say.
        if level >= logging.WARNING or facility == "FAIL":
            self.last = said or text
        if level >= logging.WARNING:
            self._tell(level, facility + thread, f"{facility}: {self.last}")

    def tell(self, kind: str, text: str) -> None:
        self._tell(logging.WARNING, kind, text)

    def _tell(self, level: int, kind: str, text: str) -> None:
        now = self._clock()
        if now < self._quiet_until.get(kind, 0.0):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._quiet_until[kind] = now + REPEAT_EVERY
        left_out = self._left_out.pop(kind, 0)
        self._logger.log(level, "%s%s", text, f" ({left_out} more like it since the last line)" if left_out else "")
