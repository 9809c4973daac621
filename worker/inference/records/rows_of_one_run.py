"""Decides which rows of a batch share a run, if their inputs are of unequal lengths, as texts are.

A run costs about as much as its rows times its longest, and something for itself. So rows of about one length run
together: a run ends before the row that would add more padding than another run costs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence


def shared_runs(
    shapes: Sequence[Hashable],
    lengths: Sequence[int],
    worth: int,
    most: int | None = None,
    ends: Sequence[int] | None = None,
) -> list[tuple[list[int], int]]:
    """The rows of each run, by index, and the length to which they are padded.

    Only rows of equal `shapes` share a run. `worth`: the elements of padding that cost as much as a run of its own.
    `most`: elements of a run, its rows times its length, but one row at least. `ends`: the lengths that the model may
    have; None: any.
    """
    if ends is not None:
        lengths = [ends[bisect_left(ends, length)] for length in lengths]
    by_shape: dict[Hashable, list[int]] = {}
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        by_shape.setdefault(shapes[row], []).append(row)
    runs: list[tuple[list[int], int]] = []
    for rows in by_shape.values():
        run: list[int] = []
        elements = 0
        for row in rows:
            length = lengths[row]
            padded = len(run) * length
            if run and (padded - elements > worth or (most is not None and padded + length > most)):
                runs.append((run, lengths[run[-1]]))
                run, elements = [], 0
            run.append(row)
            elements += length
        runs.append((run, lengths[run[-1]]))
    return runs
