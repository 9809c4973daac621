"""Stops the worker after many rejections in a row: if all requests are refused, the fault is seldom in the requests.

Answers count in the order in which they are written, because only then a result may prove unfit to be sent. So the
encoder counts, and the loop checks. A late request does not count, because lateness says nothing about its contents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from worker.core.failures import Code, TooManyRejections
from worker.core.ordering.ledger import Line, Place
from worker.core.records import Partition, Record, Rejection

# Rejections in a row that stop a new group. A wrong topic holds thousands of records; a publisher's first tries fewer.
FIRST = 100
# Seconds for which the first rejections wait for more. A backlog brings a hundred within milliseconds. Somebody who
# tries a worker with one bad request hardly notices the wait.
HOLD = 0.25


class Rejections:
    """Counts rejections in a row, up to a limit; None: there is no limit."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._in_a_row = 0
        self._reached = ""  # the rejections counted, in words, and the last one; empty below the limit

    def rejected(self, rejection: Rejection) -> None:
        """Count this rejection as the next answer."""
        if self._limit is None or rejection.is_silent or rejection.code is Code.DEADLINE_EXCEEDED:
            return
        self._in_a_row += 1
        if self._in_a_row >= self._limit:
            last = f"{rejection.record.source} as {rejection.code.value}"
            self._reached = f"{self._in_a_row} records in a row were rejected, the last one {last}"

    def predicted(self) -> None:
        """Begin to count anew, because the next answer is a result."""
        self._in_a_row = 0

    def take_back(self) -> None:
        """Begin to count anew, because answers that had left were taken back. They count when they leave again."""
        self._in_a_row = 0

    def check(self) -> None:
        """Raises `TooManyRejections` when the limit was reached."""
        if self._reached:
            raise TooManyRejections(
                f"{self._reached}, and REJECTION_LIMIT is {self._limit}: mend the publisher or the model, and start "
                "again. The dead-letter topic has the reasons, but with exactly once, which takes them back"
            )


class Newcomer(Protocol):
    """A group that may be new to its topics."""

    @property
    def has_served(self) -> bool:
        """True if the group has committed answers before; only partitions that brought a record can tell."""

    def stand_back(self, instead: Mapping[Partition, int | None]) -> None:
        """Let the next worker begin where this one began, or at the offsets `instead`; None: leave the partition be."""


class FirstRejections:
    """Stops a worker at the wrong topic before it has answered the records there. Owns the rejections held.

    While neither this process nor its group has ever had a request, rejections are held for a moment: they are taken,
    but not answered or committed. One request that can be decoded ends that for good. So does a sign of an earlier one,
    because a publisher that is broken for a night must not stop workers that served it for months.
    """

    def __init__(
        self,
        group: Newcomer,
        describe: Callable[[Record], str | None],
        takes: str,
        reason: Callable[[Rejection], str],
        *,
        is_exact: bool,
        limit: int = FIRST,
        is_over: bool = False,
    ) -> None:
        """`describe` says what a record looks like, and `reason` why it is refused, both without its contents.

        `takes` names the model's inputs. `is_exact`: no answer may be given twice. `is_over`: nothing is ever held.
        """
        self.is_over = is_over
        self._group = group
        self._is_exact = is_exact
        self._describe = describe
        self._reason = reason
        self._takes = takes
        self._limit = limit
        self._held: list[tuple[Place, Rejection]] = []
        self._lines: set[Line] = set()  # the lines of all rejections that were held
        self._in_a_row = 0
        self._release_at = 0.0

    def read(self, *, has_request: bool) -> Sequence[tuple[Place, Rejection]]:
        """Hear of records that were read. Release the rejections if there is a request, or was one before."""
        return self.release() if has_request or self._group.has_served else ()

    def holds(self, place: Place, rejection: Rejection, now: float) -> bool:
        """Hold the rejection, if it counts, and return True. Raises `TooManyRejections` at the limit."""
        # A silent or an unreadable one is no sign of what publishers send.
        if self.is_over or rejection.is_silent or rejection.record.unreadable is not None:
            return False
        if not self._held:
            self._release_at = now + HOLD
        self._held.append((place, rejection))
        self._lines.add(place.places.line)
        self._in_a_row += 1
        if self._in_a_row >= self._limit:
            self._group.stand_back(self._answered() if self._is_exact else {})
            raise TooManyRejections(self._why())
        return True

    def due(self, now: float) -> Sequence[tuple[Place, Rejection]]:
        """Give back rejections that were held long enough. Release all if the group turns out to have served before."""
        if not self._held:
            return ()
        if self._group.has_served:
            return self.release()
        return self._given_back() if now >= self._release_at else ()

    def release(self) -> Sequence[tuple[Place, Rejection]]:
        """Give back all rejections that are held, and hold none from now on."""
        self.is_over = True
        return self._given_back()

    def _given_back(self) -> Sequence[tuple[Place, Rejection]]:
        given_back, self._held = self._held, []
        return given_back

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the rejections of these partitions, which left or are read again. Then their records count again."""
        self._held = [(place, rejection) for place, rejection in self._held if place.partition not in partitions]
        self._lines = {line for line in self._lines if line.partition not in partitions}
        self._in_a_row = len(self._held)

    def _answered(self) -> Mapping[Partition, int | None]:
        """How far answers are durable, in the partitions that have answers; None where that is not known yet."""
        begun = [line for line in self._lines if line.on_the_way or line.next_offset >= 0]
        return {line.partition: None if line.on_the_way else line.next_offset for line in begun}

    def _why(self) -> str:
        held, last = len(self._held), self._held[-1][1]
        looks = self._describe(last.record)
        seen = f"The last one was refused so: {self._reason(last)}" if looks is None else f"It looks like {looks}"
        return (
            f"{self._in_a_row} records in a row were refused, the last one {last.record.source}, and this group "
            f"never answered one: is this the right topic? {seen}. The worker takes {self._takes}. {held} of them are "
            "not answered, and the group stands where it began. Name another topic in WORKER_KAFKA__REQUEST_TOPICS, or "
            "set WORKER_DELIVERY__REJECTION_LIMIT=0: then each is answered with an error"
        )
