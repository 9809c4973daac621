"""The order of a measurement: who has a turn when, and which loads they get."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.unit.tools.bench.measurements import WORKER, measured
from worker.tools.bench.columns import ONE_BY_ONE, PASS_THROUGH, Column, rates_of
from worker.tools.bench.course import Course, Measured, UnderLoad

COLUMNS = (WORKER, ONE_BY_ONE, PASS_THROUGH)


class Stage:
    """Contenders that can do what the test says, and a list of what was asked of them."""

    def __init__(self, maxima: dict[str, float]) -> None:
        self.maxima = maxima
        self.asked: list[tuple[str, float | None]] = []
        self.steps = 0
        self.spoilt = 0  # so many maxima come out at a tenth
        self.tiring = False  # each maximum comes out at half the one before

    def turn_of(self, column: Column) -> AbstractContextManager[UnderLoad]:
        return self._turn(column)

    @contextmanager
    def _turn(self, column: Column) -> Iterator[UnderLoad]:
        yield _Turn(self, column.name)

    def tell(self, steps: int, _: str) -> None:
        self.steps = steps


class _Turn:
    def __init__(self, stage: Stage, name: str) -> None:
        self._stage, self._name = stage, name

    def maximum(self, estimate: float | None) -> Measured:
        self._stage.asked.append((self._name, None))
        self._stage.spoilt, is_spoilt = max(0, self._stage.spoilt - 1), self._stage.spoilt > 0
        found = self._stage.maxima[self._name]
        if self._stage.tiring:
            self._stage.maxima[self._name] /= 2
        return measured(found * (0.1 if is_spoilt else 1.0))

    def steady(self, rate: float) -> Measured:
        self._stage.asked.append((self._name, rate))
        return measured(rate, 10.0)


def run(rates: str, rounds: int, **maxima: float) -> tuple[Stage, Course]:
    stage = Stage(dict(zip([column.name for column in COLUMNS], maxima.values(), strict=True)))
    course = Course(stage.turn_of, COLUMNS, rates_of(rates), rounds)
    course.run(stage.tell)
    return stage, course


def test_every_round_begins_with_another_contender() -> None:
    """A machine that is slow at first, or slow for a while, is slow for all."""
    stage, _ = run("100", 3, worker=9000.0, single=9000.0, copy=9000.0)

    order = [name for name, rate in stage.asked if rate == 100]

    first, second, third = (column.name for column in COLUMNS)
    assert order == [first, second, third, second, third, first, third, first, second]


def test_parts_are_of_the_first_workers_maximum() -> None:
    """All contenders get the same loads, or they could not be compared."""
    stage, course = run("50%,10%", 2, worker=8000.0, single=5000.0, copy=90_000.0)

    assert [load.rate for load in course.found().loads] == [800, 4000]
    assert {rate for _, rate in stage.asked if rate} == {800, 4000}


def test_a_first_maximum_that_was_low_by_chance_sets_no_loads() -> None:
    """The first worker's is taken twice, and the better one counts."""
    stage = Stage(dict.fromkeys([column.name for column in COLUMNS], 9000.0))
    stage.spoilt = 1
    course = Course(stage.turn_of, COLUMNS, rates_of("50%"), 1)

    course.run(stage.tell)

    assert [load.rate for load in course.found().loads] == [4500]


def test_the_maximum_that_counts_is_the_one_that_is_told() -> None:
    """A round has one maximum of each contender: the worse of the first worker's two would move its median."""
    stage = Stage(dict.fromkeys([column.name for column in COLUMNS], 9000.0))
    stage.spoilt = 1
    course = Course(stage.turn_of, COLUMNS, rates_of("50%"), 1)

    course.run(stage.tell)

    assert [found.flow.rate for found in course.found().maxima[WORKER.name]] == [9000]


def test_no_contender_gets_more_than_it_can_do() -> None:
    """A queue that grows says nothing of a latency, and takes as many times as long to be worked off."""
    stage, course = run("1000,4000", 2, worker=8000.0, single=1500.0, copy=90_000.0)

    assert {rate for name, rate in stage.asked if name == ONE_BY_ONE.name} == {None, 1000}
    assert len(course.found().steady[WORKER.name, course.found().loads[1]]) == 2


@pytest.mark.parametrize("is_tiring", [False, True], ids=["rounded up", "a worse second round"])
def test_the_first_worker_is_asked_for_all_parts_of_its_maximum(*, is_tiring: bool) -> None:
    """Two figures may be more than it, and a worse round moves the median: 100 % of it is no load beyond it."""
    stage = Stage({WORKER.name: 8260.0, ONE_BY_ONE.name: 1500.0, PASS_THROUGH.name: 90_000.0})
    stage.tiring = is_tiring
    course = Course(stage.turn_of, COLUMNS, rates_of("100%,150%"), 2)

    course.run(stage.tell)

    full, beyond = course.found().loads
    assert full.rate == 8300
    assert len(course.found().steady[WORKER.name, full]) == 2
    assert (WORKER.name, beyond) not in course.found().steady
    assert (ONE_BY_ONE.name, full) not in course.found().steady


def test_every_step_is_counted_also_those_left_out() -> None:
    """The bar reaches its end."""
    stage, course = run("1000,4000", 2, worker=8000.0, single=1500.0, copy=90_000.0)

    assert stage.steps == course.steps == 18


def test_a_contender_that_answers_nothing_ends_no_course() -> None:
    """The loads that are parts of nothing are none."""
    _, course = run("50%", 1, worker=0.0, single=1500.0, copy=90_000.0)

    assert [load.rate for load in course.found().loads] == []
