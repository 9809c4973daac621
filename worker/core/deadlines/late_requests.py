"""When an answer is useless, and what becomes of a request that would come too late.

    deadline = now + timeout − age          age = wall now − the record's timestamp; not below 0, and 0 without one
    deadline = now + (until − wall now)     where the request names an instant; of both the earlier counts

`now` is the loop's clock and `wall` that of the world, both in seconds. They meet when a record is taken, and again
when a run in peril comes apart; for all else that waits here, a wall clock that is set changes nothing. A publisher's
clock that is ahead does no harm; one that is behind costs as much of the timeout. Pure: the `Outlook` says
when a batch would be finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import inf

from worker.core.failures import Code
from worker.core.records import Record, Rejection, Request, Timeout
from worker.core.runs import Run

# A timeout of two minutes or less, and a timestamp before 1973, are late at once if they are seconds.
_MOST_SECONDS, _FIRST_MS = 120, 10**11


def deadline_of(record: Record, timeout: Timeout, now: float, wall: float) -> float:
    """The instant of the loop's clock at which an answer to this record is useless."""
    return _deadline(record.timestamp_ms, timeout, now, wall)


def most_urgent(run: Run, now: float, wall: float) -> float:
    """The earliest deadline of the run's records; infinity where none has one."""
    first = run.timeouts[0]
    if first is not None and run.timeouts.count(first) == len(run.timeouts):
        stamps = [record.timestamp_ms for record in run.records if record.timestamp_ms is not None]
        return _deadline(min(stamps, default=None), first, now, wall)
    return min(_deadlines(run, now, wall))


def parts_in_time(run: Run, now: float, wall: float, earliest: float) -> Iterator[tuple[Run, bool]]:
    """The run in parts, in order: side by side those whose deadline is before `earliest` (False), and the others."""
    lasts = [deadline >= earliest for deadline in _deadlines(run, now, wall)]
    start = 0
    for is_in_time, neighbours in groupby(lasts):
        stop = start + len(list(neighbours))
        yield run.part(start, stop), is_in_time
        start = stop


def triage(
    requests: Sequence[Request], finished_at: Callable[[int], float]
) -> tuple[Sequence[Request], Sequence[tuple[Request, float]]]:
    """Of requests that would share a batch: those that run, in order, and those that would be late, with when.

    `finished_at` says when a batch of so many rows would be finished. Where a batch of them all would come too late
    for each, fewer of them run, half as many rows and again half, since a small one finishes sooner: the others would
    be later still. None runs only when each would be late alone.
    """
    rows = sum(request.rows for request in requests)
    at = whole = finished_at(rows)
    running = _fitting(requests, rows, at)
    while not running and rows > 1:
        rows //= 2
        at = finished_at(rows)
        running = _fitting(requests, rows, at)
    kept = set(map(id, running))
    # What does not fit into the smaller batch would have been as late as the whole.
    left = [(request, request.deadline) for request in requests if id(request) not in kept]
    return running, [(request, whole if by is None or by >= at else at) for request, by in left]


def too_late(request: Request, now: float, finished_at: float) -> Rejection:
    """The answer to a request that is not run, because it would be finished at `finished_at`."""
    assert request.deadline is not None
    left = request.deadline - now
    if left <= 0:
        why = f"the deadline was {_milliseconds(-left)} ago"
    else:
        why = f"the deadline is in {_milliseconds(left)}, and the answer would take {_milliseconds(finished_at - now)}"
    return Rejection(request.record, Code.DEADLINE_EXCEEDED, f"not run: {why}{_likely_mistake(request)}", request.reply)


def _likely_mistake(request: Request) -> str:
    """The unit that a number seems to have; empty where it may well be milliseconds."""
    asked, stamp = request.timeout and request.timeout.seconds, request.record.timestamp_ms
    if not asked:
        return ""
    if stamp is not None and stamp < _FIRST_MS:
        return f"; it counts from the record's timestamp, {stamp}, which looks like seconds: Kafka's are milliseconds"
    timeout_ms = round(asked * 1000)
    if timeout_ms > _MOST_SECONDS:
        return ""
    return f"; the timeout is {timeout_ms} ms: if {timeout_ms} s are meant, that is {timeout_ms * 1000}"


def answered_late(requests: Sequence[Request], now: float) -> int:
    """How many records' deadlines are over; a run counts as a whole, by its most urgent record.

    Of a request that was cut the pieces count as one, with the last of them.
    """
    late = [_answered(request) for request in requests if request.deadline is not None and request.deadline < now]
    found = {id(request): request for request in late if request is not None}.values()
    return sum(len(request.records) if isinstance(request, Run) else 1 for request in found)


def _answered(request: Request) -> Request | None:
    """What this is a piece of, or itself; None while other pieces are missing."""
    while (reassembly := request.reassembly) is not None:
        if not reassembly.is_over:
            return None
        request = reassembly.request
    return request


def _fitting(requests: Sequence[Request], rows: int, finished_at: float) -> list[Request]:
    """As many rows of those that are in time."""
    fitting: list[Request] = []
    for request in requests:
        if request.rows <= rows and (request.deadline is None or request.deadline >= finished_at):
            fitting.append(request)
            rows -= request.rows
    return fitting


def _deadlines(run: Run, now: float, wall: float) -> list[float]:
    return [
        inf if timeout is None else _deadline(record.timestamp_ms, timeout, now, wall)
        for record, timeout in zip(run.records, run.timeouts, strict=True)
    ]


def _deadline(timestamp_ms: int | None, timeout: Timeout, now: float, wall: float) -> float:
    seconds, until = timeout
    left = inf if until is None else until - wall
    if seconds is not None:
        age = 0.0 if timestamp_ms is None else max(0.0, wall - timestamp_ms / 1000)
        left = min(left, seconds - age)
    return now + left


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
