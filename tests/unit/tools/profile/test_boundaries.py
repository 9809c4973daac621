"""Boundaries for samples that are made up."""

from __future__ import annotations

import numpy as np

from tests.unit.tools.profile.builders import padded_elements
from worker.tools.profile.engine.boundaries import MOST, BucketPlan, Floats, advise, best, candidates, choose
from worker.tools.profile.engine.lengths import Ints
from worker.tools.profile.engine.padding import in_batches, in_buckets, waste


def long_tailed(rows: int = 5000) -> Ints:
    """Lengths as of short texts: lognormal, a mean of 40, between 4 and 256."""
    spread = 0.8
    drawn = np.random.default_rng(0).lognormal(np.log(40) - spread**2 / 2, spread, rows)
    return np.clip(np.round(drawn), 4, 256).astype(np.int64)


def ints(*lengths: int) -> Ints:
    return np.array(lengths, np.int64)


def test_a_long_tailed_sample_is_padded_less_than_by_powers_of_two() -> None:
    """In batches of 32 as they come three quarters are padding; in powers of two less than a third; and then less."""
    lengths = long_tailed()

    as_they_come = waste(lengths, in_batches(lengths, 32))
    by_powers = waste(lengths, in_buckets(lengths, (16, 32, 64, 128, 256)))
    same_number = waste(lengths, in_buckets(lengths, advise(lengths, None, padded_elements, 5).boundaries))
    advised = waste(lengths, in_buckets(lengths, advise(lengths, None, padded_elements).boundaries))

    assert as_they_come > 0.7
    assert 0.27 < by_powers < 0.32
    assert advised < same_number < by_powers
    assert advised < 0.25


def test_ends_are_eights_where_that_costs_next_to_nothing() -> None:
    """And exact where rows are short and few lengths are used."""
    assert all(end % 8 == 0 for end in advise(long_tailed(), None, padded_elements).boundaries)
    assert advise(ints(*[3] * 50, *[5] * 50), None, padded_elements).boundaries == (3, 5)


def test_the_last_bucket_ends_where_it_is_told() -> None:
    """At a model's limit no end is rounded beyond it."""
    assert advise(ints(8, 16, 297), 300, padded_elements).boundaries[-1] == 300
    assert candidates(ints(8, 297), 300, 8) == [8, 300]
    assert candidates(ints(8, 297), None, 8) == [8, 304]


def test_very_long_rows_are_looked_at_in_larger_steps() -> None:
    """So that a million possible ends are not compared with each other."""
    lengths = np.arange(1, 100_000, 7)

    found = advise(lengths, None, padded_elements, 4).boundaries

    assert len(found) == 4
    assert found[-1] >= lengths[-1]
    assert all(end % 256 == 0 for end in found)


def test_a_cost_that_grows_faster_than_lengths_moves_the_ends() -> None:
    """Attention: padding a long row costs more than padding as much on short ones."""
    lengths = ints(*range(1, 101))

    def squared(length: int, rows: Floats) -> Floats:
        return length**2 * rows

    linear, steep = (best(lengths, lengths.tolist(), work, 2)[-1].boundaries for work in (padded_elements, squared))

    assert (linear, steep) == ((50, 100), (58, 100))


def test_one_length_needs_one_bucket() -> None:
    """However many are allowed."""
    assert advise(ints(*[24] * 100), None, padded_elements).boundaries == (24,)


def test_as_many_buckets_are_chosen_as_are_worth_it() -> None:
    """A plateau is crossed when what lies behind it pays for every step."""
    ends = (1,)

    assert choose([BucketPlan(ends, 100.0), BucketPlan(ends, 96.0), BucketPlan(ends, 95.0)]).cost == 100.0
    assert choose([BucketPlan(ends, 100.0), BucketPlan(ends, 90.0), BucketPlan(ends, 88.0)]).cost == 90.0
    assert choose([BucketPlan(ends, 100.0), BucketPlan(ends, 99.0), BucketPlan(ends, 60.0)]).cost == 60.0
    assert len(advise(long_tailed(), None, padded_elements).boundaries) < MOST
