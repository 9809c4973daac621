"""Decides which rows of a batch share a run, if their inputs are of unequal lengths, as texts are.

A run costs about as much as its rows times its longest. So rows of about the same length run together, and a class with
few elements joins the next longer one: on a GPU a small run takes as long as a larger one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from itertools import accumulate, takewhile

# Lengths at which classes end, each an eighth longer than the last, and 8 at least: so at most an eighth is padding.
_ENDS = [
    *takewhile(lambda end: end < 1_000_000, accumulate(range(200), lambda end, _: end + max(8, end // 8), initial=8))
]


def shared_runs(
    shapes: Sequence[Hashable],
    lengths: Sequence[int],
    least: int,
    most: int | None = None,
    ends: Sequence[int] | None = None,
) -> list[tuple[list[int], int]]:
    """The rows of each run, by index, and the length to which they are padded.

    Only rows of equal `shapes` share a run. A run has at least `least` elements where it can, its rows times its
    length, and at most `most`, but one row at least. `ends`: the lengths that the model may have; else the longest row
    of a run is its length.
    """
    by_shape: dict[Hashable, list[int]] = {}
    for row, shape in enumerate(shapes):
        by_shape.setdefault(shape, []).append(row)
    runs: list[tuple[list[int], int]] = []
    for rows in by_shape.values():
        for own in _by_class(sorted(rows, key=lengths.__getitem__), lengths, least, ends or _ENDS):
            longest = lengths[own[-1]]
            length = longest if ends is None else ends[bisect_left(ends, longest)]
            limit = len(own) if most is None else max(1, most // max(1, length))
            runs += [(own[at : at + limit], length) for at in range(0, len(own), limit)]
    return runs


def _by_class(rows: Sequence[int], lengths: Sequence[int], least: int, ends: Sequence[int]) -> list[list[int]]:
    """The rows, which ascend by length, in classes of about one length with enough elements each."""
    classes: list[list[int]] = []
    end = -1
    for row in rows:
        own = bisect_left(ends, lengths[row])
        if own != end and (not classes or len(classes[-1]) * lengths[classes[-1][-1]] >= least):
            classes.append([])
        end = own
        classes[-1].append(row)
    return classes
