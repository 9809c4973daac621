"""Two replicas of one group and random events, in an order that dice decide.

`SEED=n pytest tests/properties/test_random_schedules.py` replays a failing seed and prints its history.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.simulation.process import Spinning
from tests.properties.simulation.replica import Memory
from tests.properties.simulation.schedules import Play
from worker.core.ordering.order_by_key import Order

FEW, MANY = 30, 3000
FEW_DEADLY = 60

GUARANTEES: dict[str, tuple[bool, Order, Memory | None]] = {
    "at_least_once": (False, "partition", None),
    "at_least_once-key": (False, "key", None),
    "at_least_once-none": (False, "none", None),
    "at_least_once-changelog": (False, "partition", "changelog"),
    "at_least_once-store": (False, "partition", "store"),
    "exactly_once": (True, "partition", None),
    "exactly_once-changelog": (True, "partition", "changelog"),
}
guarantees = pytest.mark.parametrize("guarantee", GUARANTEES)


def seeds(most: int) -> list[int]:
    """The seed in SEED, or the first `most` seeds."""
    asked = os.environ.get("SEED")
    return list(range(most)) if asked is None else [int(asked)]


def play(seed: int, guarantee: str, *, is_deadly: bool = False) -> list[str]:
    """The history of one seed; `is_deadly` adds far more killers. A failure says how to see it again."""
    try:
        return play_with(random.Random(seed), guarantee, is_deadly=is_deadly)
    except (AssertionError, Spinning) as error:
        error.add_note(f"again: SEED={seed} .venv/bin/pytest tests/properties/test_random_schedules.py")
        raise


def play_with(dice: random.Random, guarantee: str, *, is_deadly: bool = False) -> list[str]:
    """The history that these dice decide."""
    is_exact, order, memory = GUARANTEES[guarantee]
    game = Play(dice, is_exact=is_exact, order=order, memory=memory)
    return (game.make_deadly() if is_deadly else game).run()


@guarantees
@pytest.mark.parametrize("is_deadly", [False, True], ids=["usual", "killers"])
def test_no_schedule_breaks_a_promise(*, guarantee: str, is_deadly: bool) -> None:
    """It may have rebalances, losses, stalls, crashes, late, refused and unknown commits, also with killers."""
    for seed in seeds(FEW_DEADLY if is_deadly else FEW):
        play(seed, guarantee, is_deadly=is_deadly)


@pytest.mark.slow
@pytest.mark.timeout(900)
@guarantees
@pytest.mark.parametrize("is_deadly", [False, True], ids=["usual", "killers"])
def test_no_schedule_of_many_breaks_a_promise(*, guarantee: str, is_deadly: bool) -> None:
    """This holds for many seeds; they take a long time."""
    for seed in seeds(MANY):
        play(seed, guarantee, is_deadly=is_deadly)


@guarantees
@settings(max_examples=20)
@given(dice=st.randoms(use_true_random=False))
def test_no_schedule_found_by_search_breaks_a_promise(guarantee: str, dice: random.Random) -> None:
    """Hypothesis makes the schedules, and shrinks the failing ones."""
    play_with(dice, guarantee)


@guarantees
def test_the_same_seed_gives_the_same_history(guarantee: str) -> None:
    """So a printed failure can be seen again."""
    first, again, other = (play(seed, guarantee) for seed in (7, 7, 8))

    assert first == again
    assert first != other
