"""The simulator's tests catch every promise that is broken on purpose.

`python -m tests.mutants --all` tries every test on every mutant, and prints which test catches which mutant, and how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.properties import test_crash_everywhere as crashes
from tests.properties import test_killers as killers
from tests.properties.simulation.checker import Broken
from tests.properties.simulation.lives import MISHAPS
from tests.properties.simulation.mutants import (
    AT_A_CHANGELOG,
    AT_A_CHANGELOG_EXACTLY_ONCE,
    AT_LEAST_ONCE,
    CRASH,
    DEADLY,
    EXACTLY_ONCE,
    IN_A_STORE,
    KEYED,
    KILLERS,
    LOOSE,
    REBALANCE,
    SCHEDULES,
    SECOND,
    Mutant,
)
from tests.properties.simulation.process import Spinning
from tests.properties.test_random_schedules import FEW, FEW_DEADLY, play

MUTANTS = {
    "at_least_once": AT_LEAST_ONCE,
    "at_least_once-key": KEYED,
    "at_least_once-none": LOOSE,
    "at_least_once-changelog": AT_A_CHANGELOG,
    "at_least_once-store": IN_A_STORE,
    "exactly_once": EXACTLY_ONCE,
    "exactly_once-changelog": AT_A_CHANGELOG_EXACTLY_ONCE,
}
CASES = [(guarantee, mutant) for guarantee, mutants in MUTANTS.items() for mutant in mutants]


def rebalances(guarantee: str) -> None:
    for what in MISHAPS:
        crashes.test_partitions_that_go_and_come_in_any_state_of_the_world_break_no_promise(
            crashes.GUARANTEES[guarantee], what
        )


def schedules(guarantee: str) -> None:
    for seed in range(FEW):
        play(seed, guarantee)


def all_killers(guarantee: str) -> None:
    for some in killers.KILLERS.values():
        killers.test_the_killers_are_found_in_one_life_and_no_other_record(killers.GUARANTEES[guarantee], some)
        killers.test_the_killers_are_found_in_one_life_and_no_other_record(
            killers.TWO_LANES[f"{guarantee}-two_lanes"], some
        )
    for seed in range(killers.FEW):
        killers.test_any_killers_anywhere_are_found_and_no_other_record(seed)


def deadly_schedules(guarantee: str) -> None:
    for seed in range(FEW_DEADLY):
        play(seed, guarantee, is_deadly=True)


TESTS: Mapping[str, Callable[[str], None]] = {
    CRASH: lambda guarantee: crashes.test_a_crash_in_any_state_of_the_world_breaks_no_promise(
        crashes.GUARANTEES[guarantee]
    ),
    SECOND: lambda guarantee: crashes.test_a_second_crash_of_the_successor_breaks_no_promise(
        crashes.GUARANTEES[guarantee]
    ),
    REBALANCE: rebalances,
    SCHEDULES: schedules,
    KILLERS: all_killers,
    DEADLY: deadly_schedules,
}


@pytest.mark.parametrize(
    ("guarantee", "mutant"), CASES, ids=[f"{guarantee}-{mutant.what}" for guarantee, mutant in CASES]
)
def test_a_broken_promise_is_caught(guarantee: str, mutant: Mutant) -> None:
    """The checker judges so, or the world does not come to rest; no other exception counts."""
    with mutant.at_large(), pytest.raises((Broken, Spinning)):
        TESTS[mutant.by](guarantee)
