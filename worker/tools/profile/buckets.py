"""Makes buckets from a sample of row lengths along one axis. Each bucket gets an equal share of the rows.

Boundaries are quantiles of the sample, rounded up to multiples of eight. So every bucket fills equally fast, and a row
is padded only to the next quantile.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.core.failures import BadConfiguration
from worker.core.tensors.axes import axes_of
from worker.core.tensors.buckets import Spot, WantedAxis
from worker.core.tensors.signature import Signature

Ints = NDArray[np.int64]

LONGEST = 1_000_000  # a longer row must be a mistake: one batch of such rows would fill the memory
# Tensor cores take the sides of half-precision matrices in eights (16 bytes). Rounding also leaves fewer lengths.
STEP = 8


class LengthAxis(NamedTuple):
    """The axis that is padded: its name for the operator, and its positions."""

    wanted: WantedAxis
    spots: Sequence[Spot]

    def __str__(self) -> str:
        return f"{self.wanted.input}:{self.wanted.axis}"


class BucketAdvice(NamedTuple):
    """The buckets; `boundaries` ascend. `before` and `after`: the share of padding in the elements the model gets."""

    axis: LengthAxis
    lengths: Ints
    boundaries: Sequence[int]
    before: float
    after: float
    mean_padded: int

    @property
    def at_mean(self) -> Mapping[Spot, int]:
        """The padded length of a mean row, for each position of the axis."""
        return dict.fromkeys(self.axis.spots, self.mean_padded)

    @property
    def setting(self) -> str:
        """The value of WORKER_BATCHING__BUCKETS."""
        wanted = self.axis.wanted
        return json.dumps({wanted.input: {"axis": wanted.axis, "boundaries": list(self.boundaries), "pad": wanted.pad}})


def buckets_for(axis: LengthAxis, lengths: Ints, count: int, batch_rows: int) -> BucketAdvice:
    """Makes `count` buckets, or fewer if quantiles are equal. `before` is the padding of batches as rows arrive."""
    quantiles = np.quantile(lengths, [(at + 1) / count for at in range(count)], method="higher")
    boundaries = sorted({min(int(lengths.max()), STEP * ceil(quantile / STEP)) for quantile in quantiles.tolist()})
    padded = np.array(boundaries)[np.searchsorted(boundaries, lengths)]
    firsts = np.arange(0, len(lengths), batch_rows)
    as_they_come = np.repeat(np.maximum.reduceat(lengths, firsts), batch_rows)[: len(lengths)]
    before, after = (float(1 - lengths.sum() / each.sum()) for each in (as_they_come, padded))
    return BucketAdvice(axis, lengths, boundaries, before, after, round(float(padded.mean())))


def axis_of(signature: Signature, asked: str | None) -> LengthAxis:
    """Returns the axis that was asked for, as in `input_ids:1`; if None, the only dynamic one in the model's file.

    Raises `BadConfiguration` with the candidates.
    """
    symbols = {
        f"{spec.name}:{at}": spec.symbol(at - 1) or (spec.name, at)
        for spec in signature.inputs
        for at, dim in enumerate(spec.dims, 1)
        if dim is None
    }
    listed = " or ".join(symbols) or "none"
    if asked is None and len(set(symbols.values())) != 1:
        raise BadConfiguration(f"say by --bucket-axis which dynamic axis lengths are about, {listed}")
    if (chosen := asked or next(iter(symbols))) not in symbols:
        raise BadConfiguration(f"--bucket-axis {asked}: expected a dynamic axis, {listed} (the batch is axis 0)")
    name, _, axis = chosen.rpartition(":")
    (spec,) = (spec for spec in signature.inputs if spec.name == name)
    wanted = WantedAxis(name, int(axis), (), spec.blank, {})
    return LengthAxis(wanted, tuple(axes_of(signature, [wanted])[0].inputs))


def lengths_of_lines(source: str, request_rows: int) -> Ints:
    """Reads the lengths of rows. Each line has the length for all rows of a request. Raises `BadConfiguration`."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        lengths = [int(line) for line in text.split()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"expected a length on each line: {error}"
        raise BadConfiguration(f"--lengths {source}: {reason}") from None
    if not lengths or not all(1 <= length <= LONGEST for length in lengths):
        raise BadConfiguration(f"--lengths {source}: expected lengths between 1 and {LONGEST:,}, one on each line")
    return np.repeat(np.array(lengths, np.int64), request_rows)
