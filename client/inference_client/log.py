"""Passes the complaints of Kafka's clients on to a logger, without flooding it.

librdkafka repeats itself: without a broker it says so eighty times a second (2026-11-26). Each kind of complaint passes
once, then at most every `REPEAT_EVERY` seconds, with the number of complaints left out.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

REPEAT_EVERY = 10.0  # seconds: six lines a minute tell that a broker is still away
# One `config` serves both of Kafka's clients, and each ignores the settings of the other.
_OTHERS = re.compile(r"is a (producer|consumer) property and will be ignored")
_TAIL = re.compile(r" \(after \d+ms in state \w+.*\)$")


class ClientLog:
    """A logger for the clients, which call it in the thread that polls them. Owns the counts of each kind of complaint.

    It begins silent, because a failure while a client is made raises an error anyway: set `is_open` once it is made.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._quiet_until: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        self.is_open = False
        self.last = ""  # the last complaint

    def log(self, level: int, template: str, facility: str, client: str, text: str) -> None:
        """Called by the client: `text` begins with the name of the thread, and that names the thread's broker."""
        if level < logging.WARNING:  # only if `debug` is set, and then every line is wanted
            self._logger.log(level, template, facility, client, text)
            return
        if facility == "CONFWARN" and _OTHERS.search(text):
            return
        thread, _, said = text.partition("]: ")
        self.last = _TAIL.sub("", said or text)
        if self.is_open:
            self._tell(level, facility + thread, f"{facility}: {self.last}")

    def _tell(self, level: int, kind: str, text: str) -> None:
        now = self._clock()
        if now < self._quiet_until.get(kind, 0.0):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._quiet_until[kind] = now + REPEAT_EVERY
        left_out = self._left_out.pop(kind, 0)
        self._logger.log(level, "%s%s", text, f" ({left_out} more like it since the last line)" if left_out else "")
