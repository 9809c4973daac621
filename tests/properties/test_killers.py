"""Records that end the host of the model: they are found at once and answered, and no other record is blamed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.builders import ENDED, HANGING, KILLER
from tests.chunks import P0, P1, floats
from tests.properties.simulation.checker import Position
from tests.properties.simulation.lives import Crash, Lives, Scenario, request, troubled
from tests.properties.simulation.replica import Setup
from worker.core.failures import Code
from worker.core.records import Record
from worker.loop.conduct import Conduct

CRASHES = floats(KILLER)
HANGS = floats(HANGING)
LARGE = floats(*[1.0] * 7, KILLER)  # cut into three pieces; the last one kills

FEW = 70

GUARANTEES = {
    "at_least_once": Setup(),
    "at_least_once-changelog": Setup(memory="changelog"),
    "at_least_once-store": Setup(memory="store"),
    "exactly_once": Setup(is_exact=True),
    "exactly_once-changelog": Setup(is_exact=True, memory="changelog"),
    "exactly_once-unique_ids": Setup(is_exact=True, transactional_id=None),
}
LESS_ORDER = {"at_least_once-key": Setup(order="key"), "at_least_once-none": Setup(order="none")}
TWO_LANES = {
    f"{name}-two_lanes": replace(setup, conduct=Conduct(lanes=2, inflight_batches=3, revoke_timeout=2.0))
    for name, setup in GUARANTEES.items()
}
ALL = {**GUARANTEES, **LESS_ORDER, **TWO_LANES}
guarantees = pytest.mark.parametrize("setup", ALL.values(), ids=ALL)

KILLERS: Mapping[str, Mapping[Position, bytes]] = {
    "first": {(P0, 0): CRASHES},
    "in a batch": {(P0, 3): CRASHES},
    "hanging": {(P1, 1): HANGS},
    "last": {(P0, 7): CRASHES},
    "in a piece": {(P0, 4): LARGE},
    "two in a row": {(P0, 3): CRASHES, (P0, 4): HANGS},
    "one each": {(P0, 3): CRASHES, (P1, 5): CRASHES},
}
killers_of = pytest.mark.parametrize("killers", KILLERS.values(), ids=KILLERS)


def with_killers(scenario: Scenario, killers: Mapping[Position, bytes]) -> Scenario:
    """The scenario's requests, with killers in these places."""

    def deadly(record: Record) -> Record:
        return record._replace(value=killers.get((record.partition, record.offset), record.value))

    return replace(
        scenario,
        requests=[deadly(record) for record in scenario.requests],
        later=[(seconds, deadly(record)) for seconds, record in scenario.later],
    )


def live_through(scenario: Scenario, *crashes: Crash) -> Lives:
    """Live until all is answered."""
    lives = Lives(scenario)
    lives.until_done(crashes)
    return lives


@guarantees
@killers_of
def test_the_killers_are_found_in_one_life_and_no_other_record(setup: Setup, killers: Mapping[Position, bytes]) -> None:
    """Each ends two hosts: one with others, one alone. It gets an error and a dead letter; others get their results."""
    lives = live_through(with_killers(Scenario(setup), killers))

    [life] = lives.lived
    lives.checker.require_killers(killers)
    assert life.lanes.hosts <= 1 + 2 * len(killers)
    blamed = [rejection for rejection in life.events.rejections if ENDED in rejection.message]
    assert {rejection.code for rejection in blamed} == {Code.INTERNAL}


@guarantees
def test_a_search_for_a_killer_survives_all_trouble(setup: Setup) -> None:
    """Reports are late, commits refused, transactions taken back; partitions leave and come back meanwhile."""
    killers = {(P0, 0): CRASHES, (P0, 7): HANGS}

    lives = live_through(with_killers(troubled(setup), killers))

    lives.checker.require_killers(killers)


@guarantees
def test_a_crash_in_any_state_of_a_search_breaks_no_promise(setup: Setup) -> None:
    """The next process begins the search anew."""
    killers = {(P0, 3): CRASHES, (P1, 1): HANGS}
    scenario = with_killers(Scenario(setup), killers)
    steps = live_through(scenario).lived[0].process.steps

    for step in sorted({changes: step for step, changes in reversed(list(enumerate(steps, 1)))}.values())[::2]:
        lives = live_through(scenario, Crash(step, last_words=step % 4 == 0, takeover=0.02))

        lives.checker.require_killers(killers)


@guarantees
def test_a_killer_behind_a_gap_is_found(setup: Setup) -> None:
    """A compacted topic has offsets far apart, and one poll brings records from both sides."""
    far = 1_000_000
    scenario = Scenario(setup, requests=[request(P0, 0, floats(1.0)), request(P0, far, CRASHES)], later=())

    lives = live_through(scenario)

    lives.checker.require_killers({(P0, far)})


@pytest.mark.parametrize("seed", range(FEW))
def test_any_killers_anywhere_are_found_and_no_other_record(seed: int) -> None:
    """Up to three killers, some of them late, are found with any lanes and any commit interval."""
    dice = random.Random(seed)
    setup = replace(
        dice.choice(list(GUARANTEES.values())),
        commit_interval=dice.choice([0.001, 0.02, 0.1]),
        conduct=Conduct(lanes=dice.choice([1, 2]), inflight_batches=3, revoke_timeout=2.0),
    )
    usual = Scenario(setup)
    positions = [(r.partition, r.offset) for r in (*usual.requests, *(record for _, record in usual.later))]
    killers = {
        position: dice.choice([CRASHES, HANGS, LARGE]) for position in dice.sample(positions, dice.randint(1, 3))
    }
    scenario = with_killers(usual, killers)
    slower = dice.choice([1.0, 10.0, 20.0])

    lives = live_through(replace(scenario, later=[(slower * seconds, record) for seconds, record in scenario.later]))

    lives.checker.require_killers(killers)
