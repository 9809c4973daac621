"""A worker dies before, and so after, each of its steps: its successor goes on, and no promise is broken.

`make unit` tries one crash in every state of the world that a worker passes through: crashes at two steps are equal if
nothing changed for others between them. `make faults` tries every step of every configuration, and every second crash
after a first. Most lives have other trouble, too (`troubled`): late reports, refused and unheard commits, transactions
taken back, partitions that bounce.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from tests.properties.simulation.lives import MISHAPS, Crash, Lives, Scenario, troubled
from tests.properties.simulation.process import Fate
from tests.properties.simulation.replica import Setup
from worker.core.batching.batcher import BatchPolicy
from worker.loop.conduct import Conduct

GUARANTEES = {
    "at_least_once": Setup(commit_interval=0.004),
    "at_least_once-singles": Setup(commit_interval=0.004, joins=False),
    "at_least_once-key": Setup(commit_interval=0.004, order="key"),
    "at_least_once-none": Setup(commit_interval=0.004, order="none"),
    "at_least_once-changelog": Setup(commit_interval=0.004, memory="changelog"),
    "at_least_once-store": Setup(commit_interval=0.004, memory="store"),
    "exactly_once": Setup(is_exact=True),
    "exactly_once-changelog": Setup(is_exact=True, memory="changelog"),
    "exactly_once-singles": Setup(is_exact=True, joins=False),
    "exactly_once-static": Setup(is_exact=True, is_static=True),
    "exactly_once-unique_ids": Setup(is_exact=True, transactional_id=None),
}
# An id of its own differs only in the wait for a dead process's transaction; a static member's id differs only in the
# consequence of being shut out. In `make unit` a smaller share is enough.
guarantees = pytest.mark.parametrize(
    "setup",
    [
        pytest.param(
            setup, id=name, marks=[pytest.mark.slow] if setup.transactional_id is None or setup.is_static else []
        )
        for name, setup in GUARANTEES.items()
    ],
)


def configurations() -> Iterator[Setup]:
    """Each guarantee with small and large lingers, one lane and two, frequent and rare commits."""
    for setup, linger, lanes, interval in product(GUARANTEES.values(), (0.0, 0.01), (1, 2), (0.001, 0.02, 0.1)):
        yield replace(
            setup,
            policy=BatchPolicy(max_rows=3, max_bytes=1 << 20, linger=linger),
            conduct=Conduct(lanes=lanes, inflight_batches=lanes + 1, revoke_timeout=2.0),
            commit_interval=interval,
        )


def steps_of_a_life(scenario: Scenario) -> list[int]:
    """The number of changes in the world before each step of a life without a crash."""
    lives = Lives(scenario)
    lives.until_done()
    assert len(lives.lived) == 1
    return lives.lived[0].process.steps


def states(steps: list[int]) -> list[int]:
    """The first step in each state of the world."""
    return sorted({changes: step for step, changes in reversed(list(enumerate(steps, 1)))}.values())


def crash(scenario: Scenario, *crashes: Crash) -> None:
    """Live with these crashes. Raises `Broken`. The first crash always happens; a successor may be done earlier."""
    assert Lives(scenario).until_done(crashes) >= 1


@guarantees
def test_a_life_passes_through_what_the_crashes_are_to_meet(setup: Setup) -> None:
    """It has three batches or more, two partitions, every kind of poison, and the trouble that was asked for."""
    lives = Lives(troubled(setup))

    lives.until_done()

    events = lives.lived[0].events
    reasons = " ".join(rejection.message for rejection in events.rejections)
    assert len(events.closed) >= 3
    assert len({chunk.partition for batch, _ in events.closed for chunk in batch.chunks}) == 2
    assert events.counted["failed"] >= 1
    assert all(reason in reasons for reason in ("poisoned", "NaN", "expected rows of 4 bytes")), reasons
    assert events.counted["assigned"] == 3
    if setup.is_exact:
        assert {ending.failure for ending, _ in events.endings} >= {None, "refused for this time", "timed out"}
        assert events.counted["rewound"] >= 2
    else:
        assert any(result.failed for result in events.commit_results)
    assert len(states(lives.lived[0].process.steps)) >= 50


@guarantees
def test_a_crash_in_any_state_of_the_world_breaks_no_promise(setup: Setup) -> None:
    """In turns, requests under way are lost, or arrive before or after the take-over."""
    scenario = troubled(setup)

    for number, step in enumerate(states(steps_of_a_life(scenario))):
        crash(scenario, list(Crash.kinds(step))[number % 3])


@guarantees
@pytest.mark.parametrize("what", MISHAPS)
def test_partitions_that_go_and_come_in_any_state_of_the_world_break_no_promise(setup: Setup, what: str) -> None:
    """All partitions go at once, whatever is under way; a transaction's offsets take long."""
    scenario = Scenario(setup, fates={"write offsets": [Fate(0.012)] * 9})

    for step in states(steps_of_a_life(scenario)):
        lives = Lives(scenario)
        lives.live(mishap=(step, what))
        lives.until_done()


@guarantees
def test_a_second_crash_of_the_successor_breaks_no_promise(setup: Setup) -> None:
    """It dies while it takes over: a sample of pairs."""
    scenario = troubled(setup)

    for number, step in enumerate(states(steps_of_a_life(scenario))[5::9]):
        for second in (12 + 5 * number, 31 + 7 * number):
            kinds = list(Crash.kinds(step))
            crash(scenario, kinds[number % 3], Crash(second, last_words=number % 2 == 0, takeover=0.02))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", [make(setup) for setup in configurations() for make in (Scenario, troubled)])
def test_a_crash_at_any_step_breaks_no_promise(scenario: Scenario) -> None:
    """This holds for every step, every configuration, and each fate of requests under way."""
    for step in range(1, len(steps_of_a_life(scenario)) + 1):
        for kind in Crash.kinds(step):
            crash(scenario, kind)


@pytest.mark.slow
@pytest.mark.timeout(900)
@guarantees
def test_any_second_crash_breaks_no_promise(setup: Setup) -> None:
    """A crash in any state of the first life is followed by one in any state of the second."""
    scenario = Scenario(setup)

    for step in states(steps_of_a_life(scenario)):
        first = Crash(step, last_words=True, takeover=0.02)
        lives = Lives(scenario)
        lives.until_done([first])
        for second in states(lives.lived[1].process.steps) if len(lives.lived) > 1 else ():
            crash(scenario, first, Crash(second, last_words=second % 4 == 0))
