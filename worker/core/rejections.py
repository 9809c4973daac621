"""So many rejections in a row, and the worker stops: where all are refused, it is seldom the requests that are wrong.

Answers count in the order in which they are written: a result may turn out not to fit only then. So the encoder counts,
and the loop checks. A request that came too late does not count, for that says nothing of what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from worker.core.failures import Code, TooManyRejections
from worker.core.records import Line, Partition, Place, Record, Rejection, Request

# A topic of another team has thousands. A publisher's first tries are fewer.
FIRST = 100
# Seconds for which the first rejections wait for more. A backlog brings a hundred within milliseconds; a person who
# tries a worker with one bad request hardly notices the wait.
HOLD = 0.25


class Rejections:
    """Counts rejections in a row, up to a limit; None: any number is answered."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._in_a_row = 0
        self._reached = ""  # how many, and which was the last; empty below the limit

    def rejected(self, rejection: Rejection) -> None:
        """The next request is answered with this."""
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


class Newcomer(Protocol):
    """A group that may be new to its topics."""

    @property
    def has_served(self) -> bool:
        """Whether it has committed answers before, as far as the partitions tell that brought a record."""

    def stand_back(self, instead: Mapping[Partition, int | None]) -> None:
        """See to it that a next worker begins where this one began, or there instead; None: leave the partition be."""


class FirstRejections:
    """Stops a worker at the wrong topic before it has answered the records there. Owns the rejections held.

    While neither this process nor its group has ever had a request, rejections are held for a moment: taken, but not
    answered, and so not committed. One request that can be decoded ends that for good, and so does a sign of an earlier
    one: a publisher that is broken for a night must not stop workers that served it for months.
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
    ) -> None:
        """`describe` says what a record looks like, and `reason` why it is refused, both without its contents.

        `takes` names the model's inputs. `is_exact`: an answer is not to be given again.
        """
        self._group = group
        self._is_exact = is_exact
        self._describe = describe
        self._reason = reason
        self._takes = takes
        self._limit = limit
        self._held: list[tuple[Place, Rejection]] = []
        self._lines: set[Line] = set()  # of all that was held
        self._in_a_row = 0
        self._release_at = 0.0

    def is_over(self, decoded: Sequence[Request | Rejection]) -> bool:
        """Whether there is a request among these, or was one before: nothing is to be held any more."""
        return self._group.has_served or not all(isinstance(each, Rejection) for each in decoded)

    def holds(self, place: Place, rejection: Rejection, now: float) -> bool:
        """Whether it is held. Raises `TooManyRejections` for the last that is borne."""
        if rejection.is_silent or rejection.record.unreadable is not None:  # no sign of what publishers send
            return False
        if not self._held:
            self._release_at = now + HOLD
        self._held.append((place, rejection))
        self._lines.add(place.line)
        self._in_a_row += 1
        if self._in_a_row >= self._limit:
            self._group.stand_back(self._answered() if self._is_exact else {})
            raise TooManyRejections(self._why())
        return True

    def due(self, now: float) -> Sequence[tuple[Place, Rejection]]:
        """The rejections that were held for long enough, or whose group has served after all."""
        return self.release() if self._held and (now >= self._release_at or self._group.has_served) else ()

    def release(self) -> Sequence[tuple[Place, Rejection]]:
        """All that is held."""
        released, self._held = self._held, []
        return released

    def forget(self, partitions: Collection[Partition]) -> None:
        """These are not ours any more, or are read again: then they count."""
        self._held = [(place, rejection) for place, rejection in self._held if place.line.partition not in partitions]
        self._lines = {line for line in self._lines if line.partition not in partitions}
        self._in_a_row = len(self._held)

    def _answered(self) -> Mapping[Partition, int | None]:
        """How far answers are durable, in partitions that have any; None where that is not known yet."""
        begun = [line for line in self._lines if line.sent or line.next_offset >= 0]
        return {line.partition: None if line.sent else line.next_offset for line in begun}

    def _why(self) -> str:
        held, last = len(self._held), self._held[-1][1]
        looks = self._describe(last.record)
        seen = f"The last one was refused so: {self._reason(last)}" if looks is None else f"It looks like {looks}"
        return (
            f"{self._in_a_row} records in a row are no requests, the last one {last.record.source}, and this group "
            f"never had one: is this the right topic? {seen}. The worker takes {self._takes}. {held} of them are not "
            "answered, and the group stands where it began. Name another topic in WORKER_KAFKA__REQUEST_TOPICS, or set "
            "WORKER_DELIVERY__REJECTION_LIMIT=0: then each is answered with an error"
        )
