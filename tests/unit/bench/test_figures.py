"""What the figures of tests/bench are made of; the measuring itself needs a broker."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from tests.bench.cases import deadlines, ragged
from tests.bench.loops.alone import arrival, bucketed, ragged_texts
from tests.bench.measuring.pace import Answers, Timetable, Verdict
from tests.bench.measuring.results import Bar
from tests.bench.measuring.throughput import Figure, Look, Turns, between, take_turns
from worker.tools.load.pace import Now


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


def test_a_cost_is_held_to_another_ones_in_the_same_round() -> None:
    """It may be so many times as much at most; beside who was not asked for there is nothing to hold it to."""
    turns = Turns({"worker": [Figure(1.0, 6.0), Figure(1.0, 9.0)], "native": [Figure(1.0, 3.0), Figure(1.0, 3.0)]}, {})

    [bar] = turns.cost("native", 2.0)

    assert bar.figure == 2.5
    assert not bar.is_kept
    assert turns.cost("floor", 1.0) == []


def test_a_figure_is_what_happened_between_two_looks() -> None:
    """What was answered, and what it cost, before the first look is in neither."""
    figure = between(Look(10.0, 500, 3.0), Look(12.0, 1500, 3.5))

    assert figure.rate == 500.0
    assert figure.cpu == 500.0
    assert math.isnan(figure.busy)


def test_the_order_rotates_and_the_first_round_does_not_count() -> None:
    """No contender is always the first on a machine that has just rested."""
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


def page(rows: Mapping[int, int], padding: Mapping[int, int]) -> str:
    """A worker's metrics after two batches of so many rows in each bucket."""
    lines = [f'{ragged.BATCHES}{{bucket="{bucket}"}} 2' for bucket in rows]
    lines += [f'{ragged.ROWS}{{bucket="{bucket}"}} {count}' for bucket, count in rows.items()]
    for bucket, count in rows.items():
        lines.append(f'{ragged.ELEMENTS}{{bucket="{bucket}",kind="data"}} {count * bucket - padding[bucket]}')
        lines.append(f'{ragged.ELEMENTS}{{bucket="{bucket}",kind="padding"}} {padding[bucket]}')
    return "\n".join([*lines, "another_total 1", ""])


def test_fill_and_padding_of_each_bucket_are_what_the_metrics_say() -> None:
    """Rows of the most that its batches could have had, and padding of all elements."""
    filled = ragged.by_bucket(page({128: 8, 16: 48}, {128: 512, 16: 0}))

    assert list(filled) == [16, 128]
    assert filled[16].fill == 0.75
    assert (filled[16].waste, filled[128].waste) == (0.0, 0.5)


def test_metrics_that_do_not_follow_from_the_lengths_miss_their_bars() -> None:
    """A row in the wrong bucket, and padding that is counted wrong."""
    lengths = [8, 8, 100]
    right = ragged.by_bucket(page({16: 2, 128: 1}, {16: 16, 128: 28}))
    wrong = ragged.by_bucket(page({16: 1, 128: 2}, {16: 8, 128: 148}))

    assert [bar.is_kept for bar in ragged.bars_of_buckets(right, lengths)] == [True, True]
    assert [bar.is_kept for bar in ragged.bars_of_buckets(wrong, lengths)] == [False, False]


def test_both_plans_run_every_row_once_and_long_enough() -> None:
    """In the order of arrival, or by bucket; also those left over at the end."""
    rows = ragged_texts(100)

    for plan in (arrival, bucketed):
        batches = list(plan(rows, 32))
        assert sorted(id(row) for together, _ in batches for row in together) == sorted(map(id, rows))
        assert all(len(row) <= length for together, length in batches for row in together)
        assert max(len(together) for together, _ in batches) == 32


EPOCH = 1_000_000.0  # what the broker's clock is ahead of ours


def answers(*each: tuple[float, float, float, str]) -> Answers:
    """Of requests that were due at, whose answers were appended at, and read at, with such a code."""
    due, appended, read, codes = zip(*each, strict=True)
    verdicts = [Verdict(code, at + EPOCH) for code, at in zip(codes, appended, strict=True)]
    return Answers(np.array(read) - np.array(due), np.array(read), verdicts)


def test_goodput_is_what_is_read_in_time_while_the_load_is_on() -> None:
    """Not what is refused or late, nor what comes before the load has settled or after it has ended."""
    first, last = (0.0, 0.1, 0.1, ""), (3.9, 4.1, 4.1, "")
    good, late_to_read, late, refused = (
        (2.0, 2.3, 2.4, ""),
        (2.1, 2.55, 2.65, ""),
        (2.2, 2.9, 3.0, ""),
        (2.3, 2.4, 2.5, "DEADLINE_EXCEEDED"),
    )

    found = deadlines.served(
        answers(first, good, late_to_read, late, refused, last), 10, 4.0, EPOCH, deadlines.Work(7, 2, 0.1)
    )

    assert (found.results, found.read_in_time, found.appended_in_time, found.refused) == (1.5, 0.5, 1.0, 0.5)
    assert found.p50 == pytest.approx(550)
    assert found.unanswered == 0
    assert found.wasted == 2  # seven rows were run for five results
    assert found.late == 1 / 5


def test_a_request_that_is_answered_twice_leaves_another_unanswered() -> None:
    """As many answers as requests are not enough."""
    twice = (2.0, 2.3, 2.4, "")

    found = deadlines.served(answers((0.0, 0.1, 0.1, ""), twice, twice), 10, 4.0, EPOCH, deadlines.Work(3, 2, 0.1))

    assert found.unanswered == 1


def test_an_answer_that_is_neither_result_nor_refusal_is_no_figure() -> None:
    """Another error means that something else was measured."""
    with pytest.raises(AssertionError, match="INTERNAL"):
        deadlines.served(answers((0.0, 0.1, 0.1, "INTERNAL")), 10, 4.0, EPOCH, deadlines.Work(1, 1, 0.1))


def test_a_timetable_says_what_is_due_and_when_the_next_is() -> None:
    """Whatever comes back."""
    pace = Timetable(np.array([0.0, 0.0, 0.5, 2.0]))

    assert [pace.ready(Now(elapsed, 0, 0)) for elapsed in (0.0, 0.5, 1.9, 2.0)] == [2, 3, 3, 4]
    assert pace.ready(Now(0.5, 2, 0)) == 1
    assert pace.until_next(Now(0.2, 2, 0)) == pytest.approx(0.3)
    assert [pace.is_over(Now(9.0, sent, 0)) for sent in (3, 4)] == [False, True]
