"""Buckets for any sample: every row fits, ends ascend, and more buckets never waste more."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.chunks import signature, spec
from worker.tools.profile.buckets import BucketAdvice, axis_of, buckets_for

AXIS = axis_of(signature(spec("x", "FP32", (None,))), None)
LENGTHS = st.lists(st.integers(1, 100), min_size=1, max_size=60)


def buckets(lengths: list[int], count: int) -> BucketAdvice:
    return buckets_for(AXIS, np.array(lengths, np.int64), count, 8)


@given(lengths=LENGTHS, count=st.integers(1, 8))
def test_every_row_fits_and_ends_ascend(lengths: list[int], count: int) -> None:
    """The last end is the longest row."""
    found = buckets(lengths, count)

    assert all(first < second for first, second in pairwise(found.boundaries))
    assert found.boundaries[-1] == max(lengths)
    assert len(found.boundaries) <= count
    assert 0 <= found.after < 1
    assert 0 <= found.before < 1


@given(lengths=LENGTHS, count=st.integers(1, 4))
def test_more_buckets_never_waste_more(lengths: list[int], count: int) -> None:
    """Twice as many buckets keep all ends and add others between them."""
    few, many = buckets(lengths, count), buckets(lengths, 2 * count)

    assert set(few.boundaries) <= set(many.boundaries)
    assert many.after <= few.after
