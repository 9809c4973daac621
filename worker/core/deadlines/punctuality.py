"""Who can still be answered in time: asked when a request is taken, and again when its batch goes to a lane.

A deadline (`late_requests.py`) is held against a forecast (`forecast.py`) here. Owns the world's clock
and tells the outlook what happens to batches. Until the first request asks for a deadline it does nothing at all:
forecasts would cost 8 µs a batch for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf

from worker.core.deadlines.forecast import Outlook
from worker.core.deadlines.late_requests import answered_late, deadline_of, most_urgent, parts_in_time, too_late, triage
from worker.core.records import Batch, BatchKind, Finished, Refused, Rejection, Request
from worker.core.runs import Run


class Punctuality:
    """Gives requests their deadlines and finds those that are too late. `now` is the loop's clock."""

    def __init__(self, outlook: Outlook, wall_clock: Callable[[], float]) -> None:
        """`wall_clock`: seconds since the epoch, as timestamps count them."""
        self._outlook = outlook
        self._wall_clock = wall_clock
        self.is_asked_for = False  # some request had a deadline

    def give_deadline(self, request: Request, now: float) -> None:
        """To one that has a timeout."""
        assert request.timeout is not None
        self.is_asked_for = True
        request.deadline = deadline_of(request.record, request.timeout, now, self._wall_clock())

    def refusal(self, request: Request, kind: BatchKind, backlog: int, now: float) -> Rejection | None:
        """Why a request that comes with a timeout is not taken; None: it is.

        It would run in a batch of this `kind`, behind so many full groups.
        """
        self.give_deadline(request, now)
        assert request.deadline is not None
        finished_at = self._outlook.finished_if_joined(now, kind, request.rows, backlog)
        return None if request.deadline >= finished_at else too_late(request, now, finished_at)

    def sifted(self, run: Run, kind: BatchKind, backlog: int, now: float) -> Iterator[Run | Sequence[Refused]]:
        """The run in parts, in order: those that can be answered in time, and the refusals of the others."""
        self.is_asked_for = True
        wall = self._wall_clock()
        finished_at = self._outlook.finished_if_joined(now, kind, run.rows, backlog)
        run.deadline = most_urgent(run, now, wall)
        if run.deadline >= finished_at:
            yield run
            return
        for part, is_in_time in parts_in_time(run, now, wall, finished_at):
            if is_in_time:
                part.deadline = most_urgent(part, now, wall)
                yield part
            else:
                yield [(single, too_late(single, now, finished_at)) for single in self._singles(part, now, wall)]

    def triaged(
        self,
        requests: Sequence[Request],
        kind: BatchKind,
        now: float,
        apart: Callable[[Sequence[Request]], Sequence[Request]],
    ) -> tuple[Sequence[Request], Sequence[Refused]]:
        """What of a batch would be finished before its deadline, and the refusals of the others.

        `apart` makes a request of each record that a run stands for; it is called only when a request is late.
        """
        first = min([request.deadline for request in requests if request.deadline is not None], default=inf)
        if first >= self._outlook.finished_at(now, kind, sum([request.rows for request in requests])):
            return requests, ()
        requests, wall = apart(requests), self._wall_clock()
        for request in requests:
            if request.deadline is None and request.timeout is not None:
                request.deadline = deadline_of(request.record, request.timeout, now, wall)
        running, late = triage(requests, lambda rows: self._outlook.finished_at(now, kind, rows))
        return running, [(request, too_late(request, now, finished_at)) for request, finished_at in late]

    # What happens to batches

    def handed_out(self, batch: Batch, now: float) -> None:
        """The batch goes to the lanes."""
        if self.is_asked_for:
            self._outlook.handed_out(batch, now)

    def returned(self, finished: Sequence[Finished], now: float) -> None:
        """These have left the lanes, and are still to be answered."""
        if self.is_asked_for:
            self._outlook.returned(finished, now)

    def failed(self, batch: Batch) -> None:
        """It has no answers: parts of it may run again."""
        if self.is_asked_for:
            self._outlook.failed(batch)

    def answered(self, batch: Batch, now: float) -> int:
        """Its answers are written. Returns how many of them came too late."""
        if not self.is_asked_for:
            return 0
        self._outlook.answered(batch, now)
        return answered_late(batch.requests, now)

    @staticmethod
    def _singles(part: Run, now: float, wall: float) -> Iterator[Request]:
        for single in part.singles():
            assert single.timeout is not None
            single.deadline = deadline_of(single.record, single.timeout, now, wall)
            yield single

    def __repr__(self) -> str:
        return f"<Punctuality is_asked_for={self.is_asked_for} {self._outlook!r}>"
