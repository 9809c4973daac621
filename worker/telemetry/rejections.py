"""The last rejection of each kind, and how often it came: an operator sees which fields fail.

Rejections of one code are of one kind if their messages begin with the same place: the text before the first colon,
such as a field's path. All elements of an array are one place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from worker.telemetry.logs import RecentRejection

MOST_KINDS = 24  # kept apart, so that memory and the page do not grow; further ones of a code share an entry
_LONGEST_PLACE = 100  # characters
_QUOTES = re.compile("['\"]")
_INDEX = re.compile(r"\[\d+\]")


class RecentRejections:
    """Owned by `WorkerEvents`."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], RecentRejection] = {}
        self.last: RecentRejection | None = None

    def add(self, code: str, source: str, message: str, date: float) -> None:
        kind = code, _place(message)
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            kind = code, ""
        before = self._kinds.get(kind)
        times = 1 if before is None else before.times + 1
        self.last = self._kinds[kind] = RecentRejection(code, source, message, date, times)

    @property
    def each(self) -> Sequence[RecentRejection]:
        return tuple(self._kinds.values())


def _place(message: str) -> str:
    """The text before the first colon; empty if there is none, or if it may quote a request."""
    place, colon, _ = message[: _LONGEST_PLACE + 1].partition(":")
    return _INDEX.sub("[*]", place) if colon and not _QUOTES.search(place) else ""
