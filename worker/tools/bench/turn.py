"""One contender's turn: topics of its own, its processes started, one load after another, and what each cost.

A load that it cannot finish leaves requests behind, which would be the next one's burden: then it begins anew, with
fresh topics. Owns the contender while the turn lasts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Self, TypeAlias

from worker.tools.bench.columns import Column
from worker.tools.bench.course import Measured
from worker.tools.load.contender import Batched, Contender
from worker.tools.load.figures import Flow, Heard, backlog_flow, steady_flow, window_flow
from worker.tools.load.generator import Generator, Site
from worker.tools.load.pace import WARM_UP_S, Backlog, Steady, Window
from worker.tools.load.places import Cluster, Mock
from worker.tools.load.usage import Usage

# A worker shows its counts a few times a second; what it has counted by a given instant shows within this.
_SHOWN_S = 2.0
_LOOK_S = 0.05
# A backlog is a little longer than the time asked for takes, and never more than a broker's disk has room for.
_AMPLE = 1.25
_BACKLOG_BYTES = 512 * 1024 * 1024
# How long it is tried what a contender can do, before a backlog of the right size is made.
_TRIAL_S = 1.0


Place: TypeAlias = Mock | Cluster


class Setup(NamedTuple):
    """What all turns share. A request has `rows` rows and `request_bytes` bytes.

    `least` and `most`: of a closed loop's window. An open one ends early with `kept` requests unanswered: no more are
    safe there.
    """

    place: Place
    start: Callable[[Column, Site], Contender]
    seconds: float
    rows: int
    request_bytes: int
    least: int
    most: int
    kept: float


class _Sample(NamedTuple):
    instant: float
    answered: int
    usage: Usage | None
    batched: Sequence[Batched]


class Turn:
    """A contender at work. Begins at the first load; as a context manager it leaves no process and no topic behind."""

    def __init__(self, setup: Setup, generator: Generator, column: Column) -> None:
        self._setup = setup
        self._generator = generator
        self._column = column
        self._stack = ExitStack()
        self._contender: Contender | None = None
        self._first: _Sample | None = None

    def maximum(self, estimate: float | None) -> Measured:
        """As many as it can. `estimate`: what is known of that, requests per second; None: it is tried first."""
        if not self._setup.place.has_backlogs:
            return self._in_window(self._setup.seconds)
        if estimate is None:
            estimate = self._in_window(_TRIAL_S).flow.rate
        self._end(in_order=True)  # a backlog is there before a contender reads it
        return self._backlog(estimate)

    def steady(self, rate: float) -> Measured:
        contender = self._started()
        self._first = self._look(contender)
        pace = Steady(rate, max(1, round(rate * self._setup.seconds)), self._setup.kept)
        sent, heard = self._generator.run(pace, contender.check, self._limit)
        last = self._settled(contender)
        self._first = self._first._replace(answered=0)
        return self._measured(steady_flow(pace, sent, heard, last.instant), sent.began, heard, last)

    def _in_window(self, seconds: float) -> Measured:
        contender = self._started()
        pace = Window(self._setup.least, self._setup.most, seconds)
        begun: list[float] = []

        def is_warm() -> bool:
            if not begun and self._generator.sent:
                begun.append(time.monotonic())
            return bool(begun) and time.monotonic() - begun[0] >= WARM_UP_S

        sent, heard = self._generator.run(pace, self._watch(contender, is_warm), self._limit)
        return self._measured(window_flow(pace, sent, heard), sent.began, heard, self._settled(contender))

    def _backlog(self, estimate: float) -> Measured:
        count = min(estimate * self._setup.seconds * _AMPLE, _BACKLOG_BYTES / self._setup.request_bytes)
        pace = Backlog(max(1000, int(count)))
        site = self._open()
        sent = self._generator.publish(pace)
        contender = self._start(site)
        watch = self._watch(contender, lambda: self._generator.answered > pace.count / 10)
        heard = self._generator.collect(sent, watch, self._limit)
        return self._measured(backlog_flow(sent, heard), sent.began, heard, self._settled(contender))

    @property
    def _limit(self) -> float:
        """How long the rest of a load may take, seconds."""
        return max(30.0, 10 * self._setup.seconds)

    def _watch(self, contender: Contender, is_warm: Callable[[], bool]) -> Callable[[], None]:
        """Looks after the contender, and takes the first sample as soon as it is warm."""
        self._first = None

        def watch() -> None:
            contender.check()
            if self._first is None and is_warm():
                self._first = self._look(contender)

        return watch

    def _look(self, contender: Contender) -> _Sample:
        """As it is now; counts of batches are as old as they are."""
        return _Sample(time.monotonic(), self._generator.answered, contender.usage(), contender.batched())

    def _settled(self, contender: Contender) -> _Sample:
        """After a load, with all that was counted during it."""
        sample = self._look(contender)
        while any(one.instant < sample.instant for one in sample.batched):
            if time.monotonic() > sample.instant + _SHOWN_S:
                break
            time.sleep(_LOOK_S)
            sample = sample._replace(batched=contender.batched())
        return sample

    def _measured(self, flow: Flow, began: float, heard: Heard, last: _Sample) -> Measured:
        if flow.unanswered:
            self._end(in_order=False)
        cpu = peak = rows = busy = None
        first = self._first
        if first is not None and last.usage is not None and first.usage is not None:
            answered = max(1, last.answered - first.answered) * self._setup.rows
            cpu = (last.usage.cpu_seconds - first.usage.cpu_seconds) / answered * 1e6
            peak = last.usage.peak_bytes
        if first is not None and first.batched:
            counted = list(zip(first.batched, last.batched, strict=True))
            rows = sum(b.rows - a.rows for a, b in counted) / max(1.0, sum(b.batches - a.batches for a, b in counted))
            busy = sum((b.busy_seconds - a.busy_seconds) / (last.instant - max(a.instant, began)) for a, b in counted)
        return Measured(flow, heard, cpu, peak, rows, busy)

    def _started(self) -> Contender:
        return self._start(self._open()) if self._contender is None else self._contender

    def _open(self) -> Site:
        """Fresh topics, and the generator turned to them."""
        site = self._stack.enter_context(self._setup.place.open())
        self._generator.open(site)
        return site

    def _start(self, site: Site) -> Contender:
        contender = self._setup.start(self._column, site)
        self._stack.push(contender)
        contender.wait_until_ready()
        self._contender = contender
        return contender

    def _end(self, *, in_order: bool) -> None:
        contender, self._contender = self._contender, None
        with self._stack:
            if in_order and contender is not None:
                contender.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end(in_order=kind is None)
