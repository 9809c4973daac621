"""Failures that come in great numbers, summed up in one log line now and then.

Bad requests or an absent broker make thousands of failures a second; a line for each would hide the first one and fill
the disk. Owns the counts since the last line; the metrics count all.
"""

from __future__ import annotations

from collections import Counter

SUM_UP_EVERY = 10.0  # seconds between two lines: soon enough for an operator, six a minute in the log


class RecurringFailure:
    """One kind of failure, counted until the next line about it is due. `fact` is what the line says."""

    def __init__(self, fact: str) -> None:
        self.fact = fact
        self._reasons: Counter[str] = Counter()
        self._example = ""
        self._quiet_until = 0.0

    def happened(self, reason: str, example: str) -> None:
        self._reasons[reason] += 1
        self._example = example

    def summary(self, now: float) -> dict[str, object] | None:
        """Fields for a line: at once for the first failure, then at most every `SUM_UP_EVERY` seconds."""
        if not self._reasons or now < self._quiet_until:
            return None
        fields = {"count": self._reasons.total(), "reasons": dict(self._reasons), "last": self._example}
        self._reasons.clear()
        self._quiet_until = now + SUM_UP_EVERY
        return fields
