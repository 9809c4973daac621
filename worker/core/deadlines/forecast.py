"""When a batch would be finished: what the lanes have before them, how long it will run, and what such forecasts miss.

    taken ─▶ waits for full groups ─▶ waits for a lane ─▶ runs ─▶ its answers are written
             backlog × usual time      `wait`             `RunTimes`  what forecasts were wrong by

Under overload every record that comes is about to be late, because the queue in Kafka grows until it is as long as the
timeouts. So a forecast that is a little too short makes every answer late, and the lanes work in vain; one that is a
little too long costs nothing, since younger records wait behind. That is why times are expected rather too long, why
the records in the worker's own queues count, and why what forecasts missed is learned too: the loop's own turns, the
writing of answers.

A forecast that nothing can make keeps itself true: no batch runs, and nothing is learned. So when no batch of a
kind has run for a while, one may find out whether it still takes so long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heapreplace

from worker.core.deadlines.run_times import RunTimes
from worker.core.records import Batch, BatchKind, Finished

# What nothing has confirmed for so many times what it takes is not believed. Where no request can ever make its
# deadline, runs in vain take a twentieth of a lane's time, which has nothing else to do.
_DOUBTED_AFTER_RUNS = 20.0
_WEIGHT, _DEVIATIONS = 1 / 8, 2.0  # of what forecasts miss
# The loop wakes for a group that is due up to two milliseconds late, its poll's slice and its lanes'.
_SLACK, _SLACK_OF_RUN = 0.003, 0.1


@dataclass(slots=True, eq=False)
class _Forecast:
    """One batch in the lanes. `began` None: it waits behind others there."""

    began: float | None
    expected: float
    finished_at: float


class Outlook:
    """Owns the run times and the forecasts of the batches that are out. Told by the loop, a few calls per batch.

    The loop begins when the first deadline comes: of batches that were out before, nothing is known.
    """

    def __init__(self, lanes: int = 1, times: RunTimes | None = None) -> None:
        self._lanes = lanes
        self._times = times or RunTimes()
        self._out: dict[int, _Forecast] = {}  # by the batch's identity, in the order handed out
        self._unanswered: dict[int, _Forecast] = {}  # have left the lanes
        self._missed = self._missed_deviation = 0.0

    def needed(self, kind: BatchKind, rows: int) -> float:
        """Seconds before its deadline by which a group of so many rows must go: more than `finished_at` asks for."""
        expected = self._times.expected(kind, rows)
        return expected * (1.0 + _SLACK_OF_RUN) + self._margin + _SLACK

    def finished_at(self, now: float, kind: BatchKind, rows: int) -> float:
        """When a batch that is handed out now should be answered: rather too late, unless the lanes have nothing to do.

        A try costs an idle lane nothing, and is how a forecast that has become too long is found out.
        """
        if self._out:
            return now + self._wait(now) + self._times.expected(kind, rows) + self._margin
        hoped = self._times.expected(kind, rows, deviations=0.0)
        return now if self._is_doubtful(now, kind, hoped) else now + hoped

    def finished_if_joined(self, now: float, kind: BatchKind, rows: int, backlog: int) -> float:
        """When a request taken now should be answered, with so many full groups before it.

        Where something is before it, it will have company, and its batch be a usual one.
        """
        if not backlog and not self._out:
            return self.finished_at(now, kind, rows)
        ahead = backlog * self._times.typical / self._lanes
        return ahead + self.finished_at(now, kind, max(rows, self._times.usual_rows(kind)))

    def handed_out(self, batch: Batch, now: float) -> None:
        """The batch goes to the lanes."""
        expected = self._times.expected(batch.kind, batch.rows)
        finished_at = now + self._wait(now) + expected
        is_running = len(self._out) < self._lanes
        self._out[id(batch)] = _Forecast(now if is_running else None, expected, finished_at)

    def returned(self, finished: Iterable[Finished], now: float) -> None:
        """These have left the lanes, and are still to be answered; those that waited there begin."""
        for batch, _, failure, seconds, _ in finished:
            if batch is not None:
                self._begin_next(batch, now)
                if failure is None:
                    self._times.note(batch.kind, batch.rows, seconds, now)

    def answered(self, batch: Batch, now: float) -> None:
        """By now the answers of a finished batch are written."""
        forecast = self._unanswered.pop(id(batch), None)
        if forecast is not None and forecast.expected:  # it was forecast, and its time was known
            # A lone hiccup is no rule, neither of a run nor of a forecast.
            missed = min(now - forecast.finished_at, forecast.expected + _DEVIATIONS * self._missed_deviation)
            off = missed - self._missed
            self._missed += _WEIGHT * off
            self._missed_deviation += _WEIGHT * (abs(off) - self._missed_deviation)

    def failed(self, batch: Batch) -> None:
        """It has no answers: parts of it may run again."""
        self._unanswered.pop(id(batch), None)

    def _begin_next(self, batch: Batch, now: float) -> None:
        forecast = self._out.pop(id(batch), None)
        if forecast is None:
            return
        self._unanswered[id(batch)] = forecast
        if forecast.began is not None:
            waiting = next((one for one in self._out.values() if one.began is None), None)
            if waiting is not None:
                waiting.began = now

    @property
    def _margin(self) -> float:
        """Seconds that forecasts were too short by, most of them."""
        return max(0.0, self._missed + _DEVIATIONS * self._missed_deviation)

    def _is_doubtful(self, now: float, kind: BatchKind, expected: float) -> bool:
        """Whether it is long ago that a batch of this kind ran."""
        at = self._times.noted_at(kind)
        return at is None or now - at >= _DOUBTED_AFTER_RUNS * expected

    def _wait(self, now: float) -> float:
        """Seconds until a lane takes what is handed out now."""
        if len(self._out) < self._lanes:
            return 0.0
        running = [max(now, one.began + one.expected) for one in self._out.values() if one.began is not None]
        heapify(running)
        for one in self._out.values():
            if one.began is None:
                heapreplace(running, running[0] + one.expected)
        return running[0] - now

    def __repr__(self) -> str:
        return f"<Outlook out={len(self._out)} margin={self._margin * 1000:.3g}ms {self._times!r}>"
