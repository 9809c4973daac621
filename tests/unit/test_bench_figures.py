"""What the figures of tests/bench are made of; the measuring itself needs a broker."""

from __future__ import annotations

import math

from tests.bench.results import Bar
from tests.bench.throughput import Figure, Look, Turns, between, take_turns


def test_a_ratio_is_the_median_of_the_ratios_within_a_round() -> None:
    """A round in which the machine was busy for both counts like any other."""
    ours = [Figure(rate, 1.0) for rate in (100.0, 10.0, 300.0)]
    theirs = [Figure(rate, 1.0) for rate in (50.0, 5.0, 50.0)]

    turns = Turns({"worker": ours, "other": theirs}, {})

    assert turns.ratio("worker", "other") == 2.0


def test_who_did_not_take_part_is_named_and_no_bar_is_kept_beside_them() -> None:
    """An absent peer makes no figure look good."""
    turns = Turns({"worker": [Figure(100.0, 1.0)]}, {"peer": "not installed"})

    bars = turns.bars({"peer": 1.0, "never asked for": 1.0})

    assert turns.lines[-1][:2] == ["peer", "not installed"]
    assert [bar.is_kept for bar in bars] == [False]
    assert "not measured" in str(bars[0])


def test_a_figure_is_what_happened_between_two_looks() -> None:
    """What was answered, and what it cost, before the first look is in neither."""
    figure = between(Look(10.0, 500, 3.0), Look(12.0, 1500, 3.5))

    assert figure.rate == 500.0
    assert figure.cpu == 500.0
    assert math.isnan(figure.busy)


def test_the_order_rotates_and_the_first_round_does_not_count() -> None:
    """Nobody is always the first on a machine that has just rested."""
    seen: list[str] = []

    def run(name: str) -> int:
        seen.append(name)
        return len(seen)

    found = take_turns(["a", "b", "c"], 2, run, lambda _: None)

    assert "".join(seen) == "abcbcacab"
    assert found == {"a": [6, 8], "b": [4, 9], "c": [5, 7]}


def test_a_bar_has_one_side() -> None:
    """At least, or at most; the bound itself is within."""
    assert Bar("x", 0.8, least=0.8).is_kept
    assert not Bar("x", 0.79, least=0.8).is_kept
    assert Bar("x", 1.0, most=1.0).is_kept
    assert not Bar("x", 1.01, most=1.0).is_kept
