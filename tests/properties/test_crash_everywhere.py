"""A worker that dies before, and so after, each of its steps: what it leaves is taken up, and no promise broken.

`make unit` tries one crash in every state of the world that a worker passes through: between two of its steps between
which nothing changed for others, a crash is the same crash. `make faults` tries every step of every configuration, and
every second crash after a first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from tests.properties.simulation.lives import Crash, Lives, Scenario
from tests.properties.simulation.replica import Setup
from worker.core.batching import BatchPolicy
from worker.loop import Conduct

GUARANTEES = {
    "at_least_once": Setup(),
    "exactly_once": Setup(is_exact=True),
    "exactly_once-unique_ids": Setup(is_exact=True, transactional_id=None),
}
guarantees = pytest.mark.parametrize("setup", GUARANTEES.values(), ids=GUARANTEES)


def configurations() -> Iterator[Setup]:
    """Each guarantee with small and large lingers, one lane and two, commits all the time and rarely."""
    for setup, linger, lanes, interval in product(GUARANTEES.values(), (0.0, 0.01), (1, 2), (0.001, 0.02, 0.1)):
        yield replace(
            setup,
            policy=BatchPolicy(max_rows=3, max_bytes=1 << 20, linger=linger),
            conduct=Conduct(lanes=lanes, inflight_batches=lanes + 1, revoke_timeout=2.0),
            commit_interval=interval,
        )


def steps_of_a_calm_life(scenario: Scenario) -> list[int]:
    """What had changed in the world before each step of a life in which nothing happens."""
    lives = Lives(scenario)
    lives.until_done()
    assert len(lives.lived) == 1
    return lives.lived[0].process.steps


def states(steps: list[int]) -> list[int]:
    """The first step in each state of the world."""
    return sorted({changes: step for step, changes in reversed(list(enumerate(steps, 1)))}.values())


def crash(scenario: Scenario, *crashes: Crash) -> None:
    """Raises `Broken` where a promise is. The first crash always has its step; a successor may be done sooner."""
    assert Lives(scenario).until_done(crashes) >= 1


@guarantees
def test_a_calm_life_passes_through_what_the_crashes_are_to_meet(setup: Setup) -> None:
    """The scenario has three batches and more, of two partitions, and every kind of poison."""
    lives = Lives(Scenario(setup))

    lives.until_done()

    life = lives.lived[0]
    partitions = {r.record.partition for b, _ in life.events.closed for r in b.requests}
    assert len(life.events.closed) >= 3
    assert len(partitions) == 2
    assert life.events.counted["failed"] >= 1
    reasons = " ".join(rejection.message for rejection in life.events.rejections)
    assert all(reason in reasons for reason in ("poisoned", "NaN", "expected rows of 4 bytes")), reasons
    assert len(states(life.process.steps)) >= 40


@guarantees
def test_a_crash_in_any_state_of_the_world_breaks_no_promise(setup: Setup) -> None:
    """Whatever has happened by then, and whatever becomes of what is under way."""
    scenario = Scenario(setup)

    for step in states(steps_of_a_calm_life(scenario)):
        for kind in Crash.kinds(step):
            crash(scenario, kind)


@guarantees
def test_a_second_crash_of_the_successor_breaks_no_promise(setup: Setup) -> None:
    """It dies while it takes up what the first one left: a sample of pairs."""
    scenario = Scenario(setup)
    first = states(steps_of_a_calm_life(scenario))

    for number, step in enumerate(first[5::6]):
        for second in (12 + 5 * number, 31 + 7 * number):
            kinds = list(Crash.kinds(step))
            crash(scenario, kinds[number % 3], Crash(second, last_words=number % 2 == 0, takeover=0.02))


@pytest.mark.slow
@pytest.mark.parametrize("setup", list(configurations()))
def test_a_crash_at_any_step_breaks_no_promise(setup: Setup) -> None:
    """Every step of every configuration, and each way in which what is under way may fare."""
    scenario = Scenario(setup)

    for step in range(1, len(steps_of_a_calm_life(scenario)) + 1):
        for kind in Crash.kinds(step):
            crash(scenario, kind)


@pytest.mark.slow
@pytest.mark.timeout(900)
@guarantees
def test_any_second_crash_breaks_no_promise(setup: Setup) -> None:
    """After a crash in any state of the first life, one in any state of the second."""
    scenario = Scenario(setup)

    for step in states(steps_of_a_calm_life(scenario)):
        first = Crash(step, last_words=True, takeover=0.02)
        lives = Lives(scenario)
        lives.until_done([first])
        for second in states(lives.lived[1].process.steps)[::2] if len(lives.lived) > 1 else ():
            crash(scenario, first, Crash(second, last_words=second % 4 == 0))
