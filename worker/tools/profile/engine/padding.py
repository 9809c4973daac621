"""What padding costs before and after: rows of a sample in batches as they come, and in buckets.

Batches are full, unless a rate and a latency budget say how many requests of one bucket can wait for each other. So
throughput is that of a worker with a backlog, at the costs of its lane alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.tools.profile.engine.advice import HEAD_ROOM, Need
from worker.tools.profile.engine.axes import LengthAxis
from worker.tools.profile.engine.boundaries import advise
from worker.tools.profile.engine.grid import LengthCosts
from worker.tools.profile.engine.lengths import Ints, Sample
from worker.tools.profile.engine.sweep import Sweep

Floats = NDArray[np.float64]

# Of the throughput that any limit on padded elements gives. Two sweeps differ by as much.
ENOUGH = 0.95


class Elements(NamedTuple):
    """Of one row's largest input, padded: `per_length` times the length, but `fixed` at least."""

    per_length: int
    fixed: int

    def of(self, lengths: Floats) -> Floats:
        return np.maximum(self.per_length * lengths, self.fixed)


class Fill(NamedTuple):
    """How many rows share a batch: up to `most`, padded elements up to `tokens`, and what comes while the first waits.

    `rate`: rows a second of one replica, None for a backlog; `wait` in seconds.
    """

    most: int
    elements: Elements
    rate: float | None = None
    wait: float = 0.0
    tokens: int | None = None

    def rows(self, lengths: Floats, shares: Floats) -> Floats:
        """In buckets of these padded lengths that get these shares of all rows. At least one."""
        come = np.full_like(shares, self.most) if self.rate is None else shares * self.rate * self.wait
        allowed = np.inf if self.tokens is None else self.tokens // self.elements.of(lengths)
        return np.clip(np.minimum(come, allowed), 1, self.most)


class Way(NamedTuple):
    """One way to treat lengths: what it wastes, and rows a second of a lane.

    `name` is `one_by_one` (one row a batch, not padded), `to_longest_boundary` or `to_longest_of_batch` (batches in the
    order of arrival), `buckets`, or `buckets_within_tokens` (with MAX_BATCH_TOKENS).
    """

    name: str
    waste: float  # of the elements that the model sees, those that are padding
    rows_per_s: float


class MeasuredBucket(NamedTuple):
    """Rows longer than the bucket before and up to `boundary`. `mean_rows` in a batch."""

    boundary: int
    share: float
    waste: float
    mean_rows: float
    swept: Sweep


class BucketAdvice(NamedTuple):
    """What to set, and the numbers behind it. `ways` ends with the advised one.

    `mean_padded` is the length of a row in its bucket, on average.
    """

    axis: LengthAxis
    sample: Sample
    ways: Sequence[Way]
    buckets: Sequence[MeasuredBucket]
    fill: Fill
    mean_padded: int

    @property
    def boundaries(self) -> list[int]:
        return [bucket.boundary for bucket in self.buckets]

    @property
    def before(self) -> Way:
        return next(way for way in self.ways if way.name == "to_longest_of_batch")

    @property
    def gain(self) -> float:
        return self.ways[-1].rows_per_s / self.before.rows_per_s


def waste(lengths: Ints, padded: Ints) -> float:
    return 1 - float(lengths.sum() / padded.sum())


def in_batches(lengths: Ints, rows: int) -> Ints:
    """What each row is padded to in batches of so many, in the order of arrival, each padded to its longest."""
    firsts = np.arange(0, len(lengths), rows)
    return np.repeat(np.maximum.reduceat(lengths, firsts), rows)[: len(lengths)]


def in_buckets(lengths: Ints, boundaries: Sequence[int]) -> Ints:
    """What each row is padded to; the last boundary holds all."""
    found: Ints = np.array(boundaries)[np.searchsorted(boundaries, lengths)]
    return found


def rows_per_s(padded: Ints, fill: Fill, costs: LengthCosts) -> float:
    """Of a lane, on rows that are padded to the ends of buckets."""
    ends, at, counts = np.unique(padded, return_inverse=True, return_counts=True)
    lengths = ends.astype(np.float64)
    return _rate(costs.row_seconds(lengths, fill.rows(lengths, counts / len(padded)))[at])


def fill_for(need: Need, transport: float, sample: Sample, at_most: float, fill: Fill) -> Fill:
    """How batches fill at that need, where a lane does so many rows a second at most.

    A replica gets what leaves it head room. Half of what Kafka leaves of the budget a request waits for company; the
    other half is for the inferences before its own, and that.
    """
    rate = need.rate * sample.rows_per_request
    replicas = max(1, ceil(rate / (at_most * (1 - HEAD_ROOM))))
    return fill._replace(rate=rate / replicas, wait=max(0.0, need.budget - transport) / 2)


def with_tokens(fill: Fill, sample: Sample, ends: Sequence[int], costs: LengthCosts) -> Fill:
    """With the fewest padded elements in a batch that cost next to no throughput; with no limit where all are needed.

    Long rows gain little from company and make it wait: a limit in rows alone is too many for them or too few for short
    ones. At least one row of the last bucket is within it. It is found for a backlog, which is when it is felt.
    """
    backlog = fill._replace(rate=None)
    padded = in_buckets(sample.lengths, ends)
    each = int(fill.elements.of(np.array([float(ends[-1])]))[0])
    limits = [n * each for n in sorted({*(1 << n for n in range(fill.most.bit_length())), fill.most})]
    rates = [rows_per_s(padded, backlog._replace(tokens=limit), costs) for limit in limits]
    fewest = next(limit for limit, rate in zip(limits, rates, strict=True) if rate >= ENOUGH * max(rates))
    return fill._replace(tokens=None if fewest == limits[-1] else fewest)


def boundaries_for(
    sample: Sample, costs: LengthCosts, fill: Fill, longest: int | None, buckets: int | None
) -> list[int]:
    """The best ones at these costs; see `advise`."""

    def work(length: int, rows: Floats) -> Floats:
        lengths = np.full(rows.shape, float(length))
        return rows * costs.row_seconds(lengths, fill.rows(lengths, rows / len(sample.lengths)))

    return list(advise(sample.lengths, longest, work, buckets).boundaries)


def compare(
    axis: LengthAxis, sample: Sample, fill: Fill, costs: LengthCosts, swept: Mapping[int, Sweep]
) -> BucketAdvice:
    """The advice in full. `swept` by boundary, ascending."""
    lengths = sample.lengths
    padded = in_buckets(lengths, list(swept))
    ends = padded.astype(np.float64)
    buckets = [_bucket(end, lengths[padded == end], fill, len(lengths), found) for end, found in swept.items()]
    unlimited = fill._replace(tokens=None)
    together = round(float(unlimited.rows(ends[:1], np.ones(1))[0]))
    whole, batches = np.full_like(lengths, max(swept)), in_batches(lengths, together)
    ways = [
        Way("one_by_one", 0.0, _rate(costs.row_seconds(lengths, 1))),
        Way("to_longest_boundary", waste(lengths, whole), _rate(costs.row_seconds(whole, together))),
        Way("to_longest_of_batch", waste(lengths, batches), _rate(costs.row_seconds(batches, together))),
        Way("buckets", waste(lengths, padded), rows_per_s(padded, unlimited, costs)),
    ]
    if fill.tokens is not None:
        ways.append(Way("buckets_within_tokens", waste(lengths, padded), rows_per_s(padded, fill, costs)))
    return BucketAdvice(axis, sample, ways, buckets, fill, round(float(padded.mean())))


def _rate(row_seconds: Floats) -> float:
    return 1 / float(row_seconds.mean())


def _bucket(end: int, lengths: Ints, fill: Fill, of_all: int, swept: Sweep) -> MeasuredBucket:
    share = len(lengths) / of_all
    lost = waste(lengths, np.full_like(lengths, end)) if len(lengths) else 0.0
    return MeasuredBucket(end, share, lost, float(fill.rows(np.array([float(end)]), np.array([share]))[0]), swept)
