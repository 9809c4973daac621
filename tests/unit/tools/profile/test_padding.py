"""Padding before and after, at costs that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.tools.profile.builders import measured
from worker.core.tensors.buckets import Spot, WantedAxis
from worker.tools.profile.engine.advice import HEAD_ROOM, Need
from worker.tools.profile.engine.axes import LengthAxis
from worker.tools.profile.engine.grid import LengthCosts
from worker.tools.profile.engine.lengths import Sample
from worker.tools.profile.engine.padding import (
    BucketAdvice,
    Elements,
    Fill,
    boundaries_for,
    compare,
    fill_for,
    in_batches,
    in_buckets,
    rows_per_s,
    waste,
    with_tokens,
)
from worker.tools.profile.engine.sweep import Sweep

AXIS = LengthAxis(WantedAxis("x", 1, ()), (Spot(0, 0),))
ONE = Elements(1, 0)
SAMPLE = Sample(np.array([2, 8, 4, 8, 1, 3, 16, 4] * 100), 800, "made up")


def swept(per_element: float, fixed: float, lengths: tuple[int, ...] = (4, 8, 16)) -> dict[int, Sweep]:
    """Inferences that take a fixed time, and by the element."""
    return {
        length: Sweep(measured({rows: [fixed + per_element * rows * length] for rows in (1, 2, 4, 8)}), None)
        for length in lengths
    }


def compared(per_element: float, fixed: float) -> BucketAdvice:
    found = swept(per_element, fixed)
    costs = LengthCosts(found)
    fill = with_tokens(Fill(8, ONE), SAMPLE, [4, 8, 16], costs)
    return compare(AXIS, SAMPLE, fill, costs, found)


def test_rows_are_padded_to_the_longest_of_their_batch_or_to_their_bucket() -> None:
    """The last batch may be short."""
    lengths = np.array([2, 5, 3, 1, 7])

    assert in_batches(lengths, 2).tolist() == [5, 5, 3, 3, 7]
    assert in_buckets(lengths, [2, 5, 8]).tolist() == [2, 5, 5, 2, 8]
    assert waste(lengths, np.array([5, 5, 3, 3, 7])) == pytest.approx(5 / 23)


def test_each_way_is_compared_at_the_same_costs() -> None:
    """Where padding is all that costs, rows a second follow from it."""
    found = compared(0.001, 0.0)

    ways = {way.name: way for way in found.ways}
    assert ways["one_by_one"].waste == 0
    assert ways["to_longest_boundary"].waste == pytest.approx(1 - 5.75 / 16)
    assert ways["to_longest_of_batch"] == found.before
    assert ways["buckets"].waste == pytest.approx(1 - 5.75 / 6.5)
    assert [bucket.share for bucket in found.buckets] == [5 / 8, 2 / 8, 1 / 8]
    assert [bucket.waste for bucket in found.buckets] == pytest.approx([1 - 14 / 20, 0, 0])
    assert found.mean_padded == 6
    assert found.gain == pytest.approx(16 / 6.5, rel=0.1)


def test_a_bucket_that_nothing_fell_into_wastes_nothing() -> None:
    """The last one may be there for what is to come."""
    lengths = swept(0.001, 0.0, (4, 8, 16, 32))

    found = compare(AXIS, SAMPLE, Fill(8, ONE), LengthCosts(lengths), lengths)

    assert (found.buckets[-1].share, found.buckets[-1].waste) == (0.0, 0.0)


def test_where_company_gains_nothing_few_elements_are_enough() -> None:
    """Long rows then run alone and short ones together, and none waits."""
    found = compared(0.01, 0.0)

    assert found.fill.tokens == 16
    assert [bucket.mean_rows for bucket in found.buckets] == [4, 2, 1]
    assert found.ways[-1].name == "buckets_within_tokens"


def test_where_company_is_all_there_is_no_limit_is_advised() -> None:
    """An inference that always takes the same wants all the rows that there are."""
    found = compared(0.0, 0.01)

    assert found.fill.tokens is None
    assert [bucket.mean_rows for bucket in found.buckets] == [8, 8, 8]
    assert found.ways[-1].name == "buckets"


def test_a_limit_on_elements_is_for_a_backlog_whatever_the_rate() -> None:
    """A rate at which no batch fills says nothing of what is enough when all do."""
    costs = LengthCosts(swept(0.0, 0.01))

    assert with_tokens(Fill(8, ONE, rate=10.0, wait=0.01), SAMPLE, [4, 8, 16], costs).tokens is None


def test_a_bucket_fills_by_its_share_of_what_a_replica_gets() -> None:
    """While a request may wait: half of what Kafka leaves of the budget."""
    fill = fill_for(Need(1000, 0.058), 0.008, SAMPLE, 500 / (1 - HEAD_ROOM), Fill(32, ONE))

    assert (fill.rate, fill.wait) == (500, 0.025)
    assert fill.rows(np.ones(4), np.array([1.0, 0.5, 0.01, 0.0])).tolist() == [12.5, 6.25, 1.0, 1.0]


def test_requests_of_several_rows_bring_them_together() -> None:
    """A rate is one of requests."""
    several = Sample(SAMPLE.lengths, 400, "made up")

    assert fill_for(Need(100, 0.1), 0.0, several, 1000, Fill(32, ONE)).rate == 200


def test_a_budget_that_kafka_uses_up_leaves_nothing_to_wait() -> None:
    """Each row is then alone."""
    fill = fill_for(Need(1000, 0.005), 0.008, SAMPLE, 10_000, Fill(32, ONE))

    assert fill.rows(np.ones(1), np.ones(1)).tolist() == [1.0]


def test_buckets_that_would_not_fill_are_fewer() -> None:
    """Where company is what pays, a low rate is not split."""
    lengths = Sample(np.arange(1, 65), 64, "made up")
    costs = LengthCosts(swept(0.00001, 0.01, (8, 16, 32, 64)))
    fill = Fill(32, ONE)

    full = boundaries_for(lengths, costs, fill, None, None)
    split = boundaries_for(lengths, costs, fill._replace(rate=100.0, wait=0.03), None, None)

    assert len(full) > 1
    assert split == [64]


def test_elements_are_of_the_largest_input() -> None:
    """One that does not vary may be larger than one that does."""
    assert Elements(2, 30).of(np.array([4.0, 20.0])).tolist() == [30, 40]


def test_throughput_is_that_of_the_mean_row() -> None:
    """Of a lane that is handed one batch after the other."""
    costs = LengthCosts(swept(0.001, 0.0))

    assert rows_per_s(np.array([4, 16]), Fill(1, ONE), costs) == pytest.approx(1 / (0.0101))
