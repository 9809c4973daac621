"""Tells whether a request can be answered in time: when it is taken, and again when its batch goes to a lane.

    deadline = now + timeout − age          age = wall now − the record's timestamp; not below 0, and 0 without one
    deadline = now + (until − wall now)     where the request names an instant; the earlier of the two deadlines counts
    answered = now + the runs that wait for a lane + its own run + the error of such forecasts, as learned

`now` is the loop's clock and `wall` the world's, both in seconds. The module compares them only when a record is taken.
A publisher's clock that is ahead does no harm. A clock that is behind shortens the timeout by the difference.

Under overload the queue in Kafka grows until it is as long as the timeouts, so every record is about to be late. If the
forecast is a little too short, every answer is late and the lanes work in vain. If it is a little too long, nothing is
lost, because younger records wait behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from math import inf

from worker.core.chunk import Batch, Chunk, Finished, Refused, records_of, refusal, without
from worker.core.failures import Code
from worker.core.records import BatchKind, Timeout
from worker.core.run_times import RunTimes

# A forecast that refuses every request is never corrected: no batch runs, so nothing is learned. If no run has
# confirmed a forecast for this many times its length, an idle lane tries one batch. Where no request can ever be in
# time, that takes a twentieth of the time of a lane that has nothing else to do.
_DOUBTED_AFTER_RUNS = 20.0
_WEIGHT, _DEVIATIONS = 1 / 8, 2.0
# The loop may wake up to two milliseconds late for a group that is due: its poll's slice and its lanes' slice.
_SLACK, _SLACK_OF_RUN = 0.003, 0.1


class Punctuality:
    """Gives requests their deadlines and finds the requests that are too late. `now` is the loop's clock.

    Owns the world's clock, the run times, and the forecasts of the batches in the lanes. Does nothing until the first
    request asks for a deadline, because forecasts would cost 8 µs a batch for nothing.
    """

    def __init__(self, wall_clock: Callable[[], float], lanes: int = 1, times: RunTimes | None = None) -> None:
        """`wall_clock` returns seconds since the epoch, like the timestamps of records."""
        self._wall_clock = wall_clock
        self._lanes = lanes
        self._times = times or RunTimes()
        self.is_asked_for = False  # some request had a deadline
        # For each batch in the lanes, by its identity: the seconds it should take, and when it should have run.
        self._out: dict[int, tuple[float, float]] = {}
        self._unanswered: dict[int, tuple[float, float]] = {}
        self._idle_at = 0.0  # when the lanes should have finished all their batches
        self._missed = self._missed_deviation = 0.0

    def sifted(self, chunk: Chunk, kind: BatchKind, backlog: int, now: float) -> tuple[Chunk | None, list[Refused]]:
        """The records that can be answered in time, with their deadlines, and refusals of the others.

        They would run in a batch of this `kind`, behind `backlog` full groups. The chunk has timeouts.
        """
        assert chunk.timeouts is not None
        self.is_asked_for = True
        wall = self._wall_clock()
        chunk.deadlines = [
            inf if timeout is None else deadline_of(record.timestamp_ms, timeout, now, wall)
            for record, timeout in zip(chunk.records, chunk.timeouts, strict=True)
        ]
        finished_at = self._finished_if_joined(now, kind, sum(chunk.rows), backlog)
        if min(chunk.deadlines) >= finished_at:
            return chunk, []
        late = [at for at, deadline in enumerate(chunk.deadlines) if deadline < finished_at]
        others = sorted({*range(len(chunk))} - {*late})
        return chunk.pick(others) if others else None, [too_late(chunk, at, now, finished_at) for at in late]

    def triaged(self, chunks: Sequence[Chunk], kind: BatchKind, now: float) -> tuple[Sequence[Chunk], list[Refused]]:
        """The records of a batch that would be finished before their deadlines, and the refusals of the others."""
        rows = [count for chunk in chunks for count in chunk.rows]
        deadlines = [at for chunk in chunks for at in chunk.deadlines or repeat(inf, len(chunk))]
        if min(deadlines) >= self.finished_at(now, kind, sum(rows)):
            return chunks, []
        late = triage(rows, deadlines, lambda rows: self.finished_at(now, kind, rows))
        records = records_of(chunks)
        refused = [too_late(*records[index], now, finished_at) for index, finished_at in late.items()]
        return without(chunks, late), refused

    # Forecasts

    def needed(self, kind: BatchKind, rows: int) -> float:
        """How many seconds before its deadline a group of `rows` must go: longer than `finished_at` asks for."""
        return self._times.mean(kind, rows) * (1.0 + _SLACK_OF_RUN) + self._margin + _SLACK

    def finished_at(self, now: float, kind: BatchKind, rows: int) -> float:
        """When a batch that is handed out now should be answered. The forecast is rather too late while lanes are busy.

        With idle lanes it has no margin: to try a batch costs nothing, and shows when forecasts have become too long.
        """
        mean = self._times.mean(kind, rows)
        if self._out:
            return now + self._wait(now) + mean + self._margin
        at = self._times.noted_at(kind)
        return now if at is None or now - at >= _DOUBTED_AFTER_RUNS * mean else now + mean

    def _finished_if_joined(self, now: float, kind: BatchKind, rows: int, backlog: int) -> float:
        """When records taken now should be answered, behind `backlog` full groups.

        If they have to wait, others will join them, so a batch of the usual size is assumed.
        """
        if not backlog and not self._out:
            return self.finished_at(now, kind, rows)
        rows = max(rows, self._times.usual_rows(kind))
        ahead = backlog * self._times.mean(kind, rows) / self._lanes
        return ahead + self.finished_at(now, kind, rows) + self._margin

    def _wait(self, now: float) -> float:
        """Seconds until a lane takes a batch that is handed out now."""
        return 0.0 if len(self._out) < self._lanes else max(0.0, self._idle_at - now)

    @property
    def _margin(self) -> float:
        """Seconds added to a forecast: most forecasts were too short by no more than that."""
        return max(0.0, self._missed + _DEVIATIONS * self._missed_deviation)

    # What happens to batches

    def handed_out(self, batch: Batch, now: float) -> None:
        """Note that the batch goes to the lanes."""
        if self.is_asked_for:
            mean = self._times.mean(batch.kind, batch.rows)
            self._out[id(batch)] = mean, now + self._wait(now) + mean
            self._idle_at = max(now, self._idle_at) + mean / self._lanes

    def returned(self, finished: Sequence[Finished], now: float) -> None:
        """Note that these runs have left the lanes and are not answered yet. Batches that waited there begin."""
        for batch, _, failure, seconds in finished if self.is_asked_for else ():
            if batch is not None and (forecast := self._out.pop(id(batch), None)):
                self._unanswered[id(batch)] = forecast
                self._idle_at = now + sum([mean for mean, _ in self._out.values()]) / self._lanes
            if batch is not None and failure is None:
                self._missed_deviation = self._missed_deviation or seconds / 2  # one run says little of the next
                self._times.note(batch.kind, batch.rows, seconds, now)

    def failed(self, batch: Batch) -> None:
        """Forget the forecast of a batch that gave no answers. Parts of it may run again."""
        self._unanswered.pop(id(batch), None)

    def answered(self, batch: Batch, now: float) -> int:
        """Learn from a batch whose answers are written. Returns how many of them came too late."""
        mean, finished_at = self._unanswered.pop(id(batch), (0.0, 0.0))
        if mean:  # it was forecast, and its time was known
            # One delay alone changes the forecast little.
            missed = min(now - finished_at, mean + _DEVIATIONS * self._missed_deviation)
            off = missed - self._missed
            self._missed += _WEIGHT * off
            self._missed_deviation += _WEIGHT * (abs(off) - self._missed_deviation)
        return answered_late(batch.chunks, now) if self.is_asked_for else 0

    def __repr__(self) -> str:
        return f"<Punctuality is_asked_for={self.is_asked_for} out={len(self._out)} margin={self._margin * 1000:.3g}ms>"


def deadline_of(timestamp_ms: int | None, timeout: Timeout, now: float, wall: float) -> float:
    """The instant of the loop's clock after which an answer to a record of this timestamp is useless."""
    seconds, until = timeout
    left = inf if until is None else until - wall
    if seconds is not None:
        age = 0.0 if timestamp_ms is None else max(0.0, wall - timestamp_ms / 1000)
        left = min(left, seconds - age)
    return now + left


def triage(rows: Sequence[int], deadlines: Sequence[float], finished_at: Callable[[int], float]) -> Mapping[int, float]:
    """The late records of a batch, by index, each with the time it would be finished.

    `finished_at` says when a batch of so many rows would be finished. If the whole batch would be late for every
    record, half as many rows are tried, and half again, because a small batch finishes sooner. No record runs only if
    each would be late alone.
    """
    most = sum(rows)
    at = whole = finished_at(most)
    while not (running := _in_time(rows, deadlines, most, at)) and most > 1:
        most //= 2
        at = finished_at(most)
    # A record left out of the smaller batch for its size would have been as late as the whole batch.
    return {index: whole if deadline >= at else at for index, deadline in enumerate(deadlines) if index not in running}


def _in_time(rows: Sequence[int], deadlines: Sequence[float], most: int, finished_at: float) -> set[int]:
    """The indexes of records that are in time, up to `most` rows."""
    fitting: set[int] = set()
    for index, (count, deadline) in enumerate(zip(rows, deadlines, strict=True)):
        if count <= most and deadline >= finished_at:
            fitting.add(index)
            most -= count
    return fitting


def too_late(chunk: Chunk, at: int, now: float, finished_at: float) -> Refused:
    """The refusal of a record that does not run, because it would be finished only at `finished_at`."""
    assert chunk.deadlines is not None
    left = chunk.deadlines[at] - now
    if left <= 0:
        why = f"the deadline was {_milliseconds(-left)} ago"
    else:
        why = f"the deadline is in {_milliseconds(left)}, and the answer would take {_milliseconds(finished_at - now)}"
    timeout = None if chunk.timeouts is None else chunk.timeouts[at]
    if timeout is not None and timeout.seconds is not None:
        why += f" (timeout-ms {round(timeout.seconds * 1000)}, from the timestamp {chunk.records[at].timestamp_ms})"
    return refusal(chunk, at, Code.DEADLINE_EXCEEDED, f"not run: {why}")


def answered_late(chunks: Sequence[Chunk], now: float) -> int:
    """How many records' deadlines are over.

    A piece of a cut record counts if all its pieces are back. Then each piece in this batch counts.
    """
    return sum(
        sum(deadline < now for deadline in chunk.deadlines)
        for chunk in chunks
        if chunk.deadlines is not None and (chunk.reassembly is None or chunk.reassembly.is_over)
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
