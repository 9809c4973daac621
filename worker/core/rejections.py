"""So many rejections in a row, and the worker stops: where all are refused, it is seldom the requests that are wrong.

In a row is meant of answers in the order in which they leave: among the records of a poll or a batch, rejections are
known before results. That a request came too late says nothing of what it holds, and does not count.
"""

from __future__ import annotations

from collections.abc import Iterable

from worker.core.failures import Code, TooManyRejections
from worker.core.ledger import Place
from worker.core.records import Rejection


class Rejections:
    """Counts those in a row, up to a limit; None: any number is answered."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._in_a_row = self._most = 0
        self._last = ""

    def count(self, leaving: Iterable[Place]) -> None:
        """The outcomes of these leave, in this order."""
        if self._limit is None:
            return
        for place in leaving:
            outcome = place.outcome
            if not isinstance(outcome, Rejection):
                self._in_a_row = 0
            elif not outcome.is_silent and outcome.code is not Code.DEADLINE_EXCEEDED:
                self._in_a_row += 1
                self._most = max(self._most, self._in_a_row)
                self._last = f"{outcome.record.source} as {outcome.code.value}"

    def take_back(self) -> None:
        """Answers that had left are taken back, and will leave again: then they count."""
        self._in_a_row = 0

    def check(self) -> None:
        """Raises `TooManyRejections` when the limit was reached."""
        if self._limit is not None and self._most >= self._limit:
            raise TooManyRejections(
                f"{self._most} requests in a row were rejected, the last one {self._last}, and REJECTION_LIMIT is "
                f"{self._limit}: mend the publisher or the model, and start again. The dead-letter topic has the "
                "reasons, but with exactly once, which takes them back"
            )
