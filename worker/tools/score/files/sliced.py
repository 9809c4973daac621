"""Many inferences for one errand of a lane.

A small model answers a batch in less time than it takes two threads to hand it over (60 against 150 µs, measured). So a
file's rows go to the lanes by the thousand, and the lane cuts them: each inference has the rows of one batch, no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.inference.running.lanes import RunnableModel


class Sliced:
    """A `RunnableModel` over another, with at most `rows` rows at once. Called by several lanes at once."""

    def __init__(self, runner: RunnableModel, rows: int) -> None:
        self._runner = runner
        self._rows = rows

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        """All outputs whole, or the first failure."""
        rows = len(next(iter(feeds.values())))
        if rows <= self._rows:
            return self._runner.run(feeds)
        slices: list[Sequence[Array]] = []
        for start in range(0, rows, self._rows):
            stop = min(start + self._rows, rows)
            outputs = self._runner.run({name: array[start:stop] for name, array in feeds.items()})
            if isinstance(outputs, RunFailure):
                return outputs
            # Looked at here: a row too few in one slice and one too many in the next would be missed in the whole.
            if any(output.shape[:1] != (stop - start,) for output in outputs):
                return RunFailure(f"{stop - start} rows went in, and another number came out")
            slices.append(outputs)
        if len({tuple(output.shape[1:] for output in outputs) for outputs in slices}) > 1:
            return RunFailure("the shape of an output's rows depends on their neighbours")
        return [np.concatenate(parts) for parts in zip(*slices, strict=True)]

    def probe(self) -> Sequence[Array] | RunFailure:
        """The warm-up batch."""
        return self._runner.probe()
