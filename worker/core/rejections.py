"""So many rejections in a row, and the worker stops: where all are refused, it is seldom the requests that are wrong.

In a row is meant of answers in the order in which they are written: among the records of a poll or a batch, rejections
are known before results, and a result may turn out not to fit only when it is written. So the encoder counts, and the
loop checks. That a request came too late says nothing of what it holds, and does not count.
"""

from __future__ import annotations

from worker.core.failures import Code, TooManyRejections
from worker.core.records import Rejection


class Rejections:
    """Counts those in a row, up to a limit; None: any number is answered."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._in_a_row = 0
        self._reached = ""  # how many, and which was the last; empty below the limit

    def rejected(self, rejection: Rejection) -> None:
        """This is what the next request is answered."""
        if self._limit is None or rejection.is_silent or rejection.code is Code.DEADLINE_EXCEEDED:
            return
        self._in_a_row += 1
        if self._in_a_row >= self._limit:
            last = f"{rejection.record.source} as {rejection.code.value}"
            self._reached = f"{self._in_a_row} requests in a row were rejected, the last one {last}"

    def predicted(self) -> None:
        """The next request is answered with a result."""
        self._in_a_row = 0

    def take_back(self) -> None:
        """Answers that had left are taken back, and will leave again: then they count."""
        self._in_a_row = 0

    def check(self) -> None:
        """Raises `TooManyRejections` when the limit was reached."""
        if self._reached:
            raise TooManyRejections(
                f"{self._reached}, and REJECTION_LIMIT is {self._limit}: mend the publisher or the model, and start "
                "again. The dead-letter topic has the reasons, but with exactly once, which takes them back"
            )
