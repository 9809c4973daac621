"""Boundaries through any sample: none is better, every row fits, and more buckets never waste more."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tools.profile.builders import padded_elements
from worker.tools.profile.engine.boundaries import Floats, Work, advise, best, candidates
from worker.tools.profile.engine.lengths import Ints
from worker.tools.profile.engine.padding import in_buckets, waste


def _squared(length: int, rows: Floats) -> Floats:
    return length**2 * rows


def _by_the_batch(length: int, rows: Floats) -> Floats:
    """Few rows cost more each, as in a bucket that never fills."""
    return np.where(rows > 0, length * (rows + 3), 0.0)


LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30).map(lambda lengths: np.array(lengths, np.int64))
WORKS: st.SearchStrategy[Work] = st.sampled_from([padded_elements, _squared, _by_the_batch])


def _cost(lengths: Ints, ends: tuple[int, ...], work: Work) -> float:
    counts = np.bincount(np.searchsorted(ends, lengths), minlength=len(ends)).astype(np.float64)
    return float(sum(work(end, counts[at : at + 1])[0] for at, end in enumerate(ends)))


@given(lengths=LENGTHS, most=st.integers(1, 4), step=st.sampled_from([1, 8]), work=WORKS)
def test_no_other_boundaries_cost_less(lengths: Ints, most: int, step: int, work: Work) -> None:
    """Of all that there are with so many buckets or fewer."""
    ends = candidates(lengths, None, step)

    for allowed, plan in enumerate(best(lengths, ends, work, most), 1):
        choices = [
            (*inner, ends[-1]) for count in range(allowed) for inner in combinations(ends[:-1], min(count, len(ends)))
        ]
        assert plan.cost == min(_cost(lengths, choice, work) for choice in choices)
        assert plan.cost == _cost(lengths, plan.boundaries, work)


@given(
    lengths=LENGTHS,
    beyond=st.none() | st.integers(0, 30),
    buckets=st.none() | st.integers(1, 6),
    work=WORKS,
)
def test_every_row_fits_and_ends_ascend(lengths: Ints, beyond: int | None, buckets: int | None, work: Work) -> None:
    """The last end is the longest that was asked for."""
    longest = None if beyond is None else int(lengths.max()) + beyond

    ends = advise(lengths, longest, work, buckets).boundaries

    assert all(first < second for first, second in pairwise(ends))
    assert (in_buckets(lengths, ends) >= lengths).all()
    assert longest is None or ends[-1] == longest
    assert buckets is None or len(ends) <= buckets


@given(lengths=LENGTHS)
def test_more_buckets_never_waste_more(lengths: Ints) -> None:
    """Of the elements that the model sees, fewer are padding."""
    plans = best(lengths, candidates(lengths, None, 8), padded_elements, 6)

    wasted = [waste(lengths, in_buckets(lengths, plan.boundaries)) for plan in plans]

    assert all(more <= fewer for fewer, more in pairwise(wasted))
    assert all(0 <= share < 1 for share in wasted)
