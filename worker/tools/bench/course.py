"""The whole measurement: every contender in every round, each time in another order, and what was found.

Rounds are interleaved: a machine that is busy for a while is busy for all. Owns the results, which can be read at any
time, also after an interruption.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from worker.tools.bench.columns import Column, Rate
from worker.tools.load.figures import Flow, Heard


class Measured(NamedTuple):
    """One load on one contender. `heard` has what was wrong with answers. None: unknown for this contender here."""

    flow: Flow
    heard: Heard
    cpu_seconds_per_million_rows: float | None
    peak_bytes: int | None
    rows_per_batch: float | None
    busy_seconds_per_second: float | None


class Load(NamedTuple):
    """An open loop: requests per second, and what was asked for."""

    rate: float
    asked: Rate


class Findings(NamedTuple):
    """What was measured so far, by the contender's name: the maxima, and the loads, a list entry for each round.

    A load without entries for a contender was more than its maximum.
    """

    maxima: dict[str, list[Measured]]
    steady: dict[tuple[str, Load], list[Measured]]
    loads: tuple[Load, ...]


class UnderLoad(Protocol):
    """A contender at work, under one load after another."""

    def maximum(self, estimate: float | None) -> Measured: ...
    def steady(self, rate: float) -> Measured: ...


class Course:
    """Rounds over columns. The first column is the one by whose maximum rates are set, where they are parts of one."""

    def __init__(
        self,
        turn_of: Callable[[Column], AbstractContextManager[UnderLoad]],
        columns: Sequence[Column],
        rates: Sequence[Rate],
        rounds: int,
    ) -> None:
        self._turn_of = turn_of
        self._columns = columns
        self._rates = rates
        self._rounds = rounds
        self._loads: tuple[Load, ...] | None = None
        self._steps_done = 0
        self._maxima: dict[str, list[Measured]] = defaultdict(list)
        self._steady: dict[tuple[str, Load], list[Measured]] = defaultdict(list)

    @property
    def steps(self) -> int:
        """How many measurements it is, at most."""
        return self._rounds * len(self._columns) * (1 + len(self._rates))

    def found(self) -> Findings:
        return Findings(dict(self._maxima), dict(self._steady), self._loads or ())

    def run(self, tell: Callable[[int, str], object]) -> None:
        """All of it; `tell` hears how many steps are done, and what comes now. Raises `Stop` when anything fails."""
        for number in range(self._rounds):
            first = number % len(self._columns)
            for column in (*self._columns[first:], *self._columns[:first]):
                where = f"round {number + 1} of {self._rounds}, {column.name}"
                with self._turn_of(column) as turn:
                    self._take(turn, column, where, tell)
        tell(self._steps_done, "done")

    def _take(self, turn: UnderLoad, column: Column, where: str, tell: Callable[[int, str], object]) -> None:
        tell(self._steps_done, f"{where}: maximum")
        self._measure_maximum(turn, column)
        if self._loads is None:
            # The loads of all rounds depend on it: a machine that was busy just then would make them too low.
            self._measure_maximum(turn, column)
            better = max(self._maxima[column.name], key=lambda measured: measured.flow.rate)
            self._maxima[column.name] = [better]
            self._loads = self._set_loads(better.flow.rate)
        self._steps_done += 1
        for load in self._loads:
            if self._is_tried(column, load):
                tell(self._steps_done, f"{where}: {load.rate:,.0f} a second")
                self._steady[column.name, load].append(turn.steady(load.rate))
            self._steps_done += 1

    def _is_tried(self, column: Column, load: Load) -> bool:
        """Not a load that is more than it can do: a queue would grow, and take many times as long to be answered.

        A part of the first column's own maximum is never too much for it, whatever a later round finds.
        """
        is_its_own = column == self._columns[0] and load.asked.is_part and load.asked.number <= 1
        return is_its_own or load.rate <= (self._maximum(column) or 0.0)

    def _measure_maximum(self, turn: UnderLoad, column: Column) -> None:
        self._maxima[column.name].append(turn.maximum(self._maximum(column)))

    def _maximum(self, column: Column) -> float | None:
        """Its median so far."""
        found = [measured.flow.rate for measured in self._maxima[column.name]]
        return statistics.median(found) if found else None

    def _set_loads(self, maximum: float) -> tuple[Load, ...]:
        loads = {Load(rate.at(maximum), rate) for rate in self._rates}
        return tuple(sorted(load for load in loads if load.rate > 0))
