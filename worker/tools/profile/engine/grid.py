"""What an inference takes by the length of its rows and by their number: few sizes at each of a few lengths.

Measured as a sweep measures, in rounds in which all lengths and sizes take turns. Between what was measured costs lie
on straight lines. Rows are ones and not zeros where the model runs on them: a mask of zeros may save it work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.core.tensors.buckets import Spot
from worker.tools.profile.engine.axes import LengthAxis
from worker.tools.profile.engine.costs import HAND_OVER_SECONDS
from worker.tools.profile.engine.lengths import Ints
from worker.tools.profile.engine.sweep import SizeTimings, Sweep

Floats = NDArray[np.float64]

ROUNDS = 4  # of a sweep at lengths
SIZES = 4  # batch sizes at each length


class Ragged(Protocol):
    """A `Model`."""

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure: ...
    def blank(self, rows: int, lengths: Mapping[Spot, int] = ..., value: int | None = ...) -> Mapping[str, Array]: ...


class AtLength:
    """The model on rows that are so long along the axis: what a `Bench` measures."""

    def __init__(self, model: Ragged, axis: LengthAxis, length: int) -> None:
        self._model = model
        self._lengths = dict.fromkeys(axis.spots, length)
        self._value = 1
        if isinstance(model.run(self.blank(1)), RunFailure):
            self._value = 0
        self.run = model.run

    def blank(self, rows: int) -> Mapping[str, Array]:
        return self._model.blank(rows, self._lengths, self._value)


def batch_sizes(most: int, request_rows: int) -> list[int]:
    """A few up to that many rows: one request's, and then in fours."""
    sizes = {max(request_rows, most // 4**n) for n in range(SIZES - 1)}
    return sorted(sizes | {request_rows})


def powers_between(shortest: int, longest: int) -> list[int]:
    """Lengths to measure: powers of two, and the longest; the first holds the shortest."""
    powers = [1 << n for n in range(longest.bit_length()) if 1 << n >= min(shortest, longest)]
    return sorted({*powers, longest})


class _Curve(NamedTuple):
    """Of one length: seconds of an inference by its rows, ascending."""

    rows: Floats
    seconds: Floats


class LengthCosts:
    """What a row costs a lane by its length and the rows of its batch, in seconds, what lies between two runs included.

    Beyond what was measured a row costs what it does at the nearest length or size.
    """

    def __init__(self, swept: Mapping[int, Sweep]) -> None:
        self._lengths = np.array(sorted(swept), np.float64)
        self._curves = [_curve(swept[length].sizes) for length in sorted(swept)]

    def row_seconds(self, lengths: Ints | Floats, rows: float | Floats) -> Floats:
        """Of each of these lengths, in batches of so many rows."""
        wide, many = np.broadcast_arrays(np.asarray(lengths, np.float64), rows)
        by_length = np.stack([_row_seconds(curve, many) for curve in self._curves])
        above = np.clip(np.searchsorted(self._lengths, wide), 0, len(self._lengths) - 1)
        below = np.maximum(above - 1, 0)
        span = np.maximum(self._lengths[above] - self._lengths[below], 1)
        share = np.where(above == below, 1.0, np.clip((wide - self._lengths[below]) / span, 0, 1))
        at = np.arange(wide.size)
        found: Floats = (1 - share) * by_length[below, at] + share * by_length[above, at]
        return found


def _curve(sizes: Sequence[SizeTimings]) -> _Curve:
    return _Curve(
        np.array([size.rows for size in sizes], np.float64), np.array([size.run_seconds(50) for size in sizes])
    )


def _row_seconds(curve: _Curve, rows: Floats) -> Floats:
    known = np.clip(rows, curve.rows[0], curve.rows[-1])
    return (HAND_OVER_SECONDS + np.interp(known, *curve)) / np.minimum(rows, known)
