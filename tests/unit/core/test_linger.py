"""How long to wait for company, learned from past arrivals."""

from __future__ import annotations

from math import inf

import pytest

from tests.chunks import MODEL
from worker.core.batching.linger import ARRIVALS, LOOK_EVERY, WAITS, Linger, SimulatedLanes
from worker.core.records import BatchKind

ONE, OTHER = BatchKind(MODEL, ((1,),)), BatchKind(MODEL, ((2,),))


def linger(first: float = 0.0, every: float = 0.0, *, rows: int = 64, lanes: int = 1, budget: float = inf) -> Linger:
    """A linger for a model whose inferences take `first` seconds for one row and `every` for each further row."""
    auto = Linger(lambda _kind: rows, lanes=lanes, budget=budget)
    if first:
        take(auto, first, every)
    return auto


def take(auto: Linger, first: float, every: float = 0.0) -> None:
    """Teach the linger that inferences take so long now."""
    for rows in (1, 2, 4, 8, 16, 32, 64) * 100:
        for kind in (ONE, OTHER):
            auto.ran(kind, rows, first + (rows - 1) * every, 0.0)


def bursts(auto: Linger, offsets: list[float], *, began: float = 0.0, seconds: int = 1) -> float:
    """Five bursts a second, each with rows at these offsets from its beginning, and a look after each second."""
    for second in range(seconds):
        for fifth in range(5):
            for offset in offsets:
                auto.arrived(began + second + fifth / 5 + offset, ONE, 1)
        auto.look(began + second + 1.0)
    return auto.wait


def test_nobody_waits_while_nothing_is_known() -> None:
    """Before the first batch no run time is known, so nothing justifies a wait."""
    auto = linger()

    assert bursts(auto, [0.0, 0.001]) == 0.0


def test_a_burst_that_would_be_cut_in_two_is_waited_for() -> None:
    """Its first request would run alone, and all others would wait for it: so the wait is as long as the burst."""
    auto = linger(0.010)

    assert bursts(auto, [0.0, 0.0005, 0.0015, 0.002]) == 0.002


def test_nobody_waits_for_nobody() -> None:
    """Where requests come alone, waiting only costs time."""
    auto = linger(0.010)

    assert bursts(auto, [0.0]) == 0.0


def test_a_model_that_takes_less_than_a_millisecond_never_waits() -> None:
    """A poll cannot wait for less than that."""
    auto = linger(0.0009)

    assert bursts(auto, [0.0, 0.0001]) == 0.0


def test_rows_that_do_not_fit_close_a_batch_in_thought_too() -> None:
    """The batcher does so too: it checks limits before adding."""
    replay = SimulatedLanes(1.0, {ONE: 4}, 1, lambda _shapes, _rows: 0.5)

    found = replay.serve([(0.0, ONE, 3), (0.25, ONE, 2)])

    assert found.squares == pytest.approx(3 * 0.75**2 + 2 * 1.5**2)
    assert found.lane == 1.0


def test_rows_of_other_shapes_are_no_company() -> None:
    """Each kind waits for its own company, and here none comes."""
    auto = linger(0.010)
    for at in range(20):
        auto.arrived(at / 20, ONE, 1)
        auto.arrived(at / 20 + 0.012, OTHER, 1)

    auto.look(1.0)

    assert auto.wait == 0.0


def test_a_second_lane_takes_those_who_come_later() -> None:
    """Later requests need not wait, so earlier ones need not wait for them."""
    pair = [0.0, 0.001]

    assert bursts(linger(0.010), pair) == 0.001
    assert bursts(linger(0.010, lanes=2), pair) == 0.0


def test_the_budget_bounds_the_wait() -> None:
    """The wait leaves enough of the budget for a full batch's inference."""
    late = [0.0, *[0.0065] * 20]

    assert bursts(linger(0.050), late) == 0.007
    assert bursts(linger(0.050, budget=0.0575), late) == 0.007
    assert bursts(linger(0.050, budget=0.0565), late) < 0.0065
    assert bursts(linger(0.050, budget=0.020), late) == 0.0


def test_what_was_learned_is_forgotten_when_the_bursts_end() -> None:
    """It takes seconds, since the findings of earlier looks fade."""
    auto = linger(0.010)
    assert bursts(auto, [0.0, 0.002], seconds=30) == 0.002

    assert bursts(auto, [0.0], began=30.0, seconds=15) == 0.0


def test_slow_times_do_not_outweigh_what_is_now() -> None:
    """A look counts by its rows, not by how long they waited."""
    auto = linger(1.0)
    bursts(auto, [0.0] + [0.02] * 9, seconds=30)

    take(auto, 0.005)

    assert bursts(auto, [0.0] * 10, began=30.0, seconds=6) == 0.0


def test_a_wait_that_costs_nothing_is_taken_where_it_spares_the_lane() -> None:
    """Late requests wait equally long for the first inference or with it, and waiting together saves one inference."""
    late = [0.0, *[0.0045] * 60]

    assert bursts(linger(0.005), late) == 0.005


def test_the_wait_in_force_stays_while_it_is_about_as_good() -> None:
    """It does not jump when bursts are a little shorter or longer at times."""
    auto = linger(0.100)
    assert bursts(auto, [0.0, *[0.0025] * 20]) == 0.003

    assert bursts(auto, [0.0, *[0.0018] * 20], began=1.0, seconds=20) == 0.003


def test_a_look_is_taken_once_a_second() -> None:
    """This holds for any number of batches."""
    auto = linger(0.010)
    bursts(auto, [0.0])
    for offset in (0.0, 0.002) * 50:
        auto.arrived(1.1 + offset, ONE, 1)

    auto.look(1.0 + LOOK_EVERY / 2)

    assert auto.wait == 0.0


def test_what_is_remembered_is_bounded() -> None:
    """The first arrivals of each second stand for all of them."""
    auto = linger(0.010)
    for at in range(ARRIVALS):
        auto.arrived(at / ARRIVALS, ONE, 1)
    for _ in range(1000):
        auto.arrived(0.999, ONE, 1_000_000)

    auto.look(1.0)

    assert auto.wait in WAITS
    assert auto.wait < 0.005


def test_its_repr_says_how_long() -> None:
    """Logs show it."""
    assert repr(linger()) == "<Linger wait=0ms>"


def test_a_full_batch_waits_for_nobody() -> None:
    """A burst of two full batches runs at once, in two batches."""
    auto = linger(0.010, rows=4)

    assert bursts(auto, [0.0] * 8) == 0.0
