"""The rows of an array file, asked in passes: first many at once, then what was refused in smaller and smaller pieces.

| pass | a record has                                    | when one of its rows is bad |
|---|---|---|
| 1    | one batch, to see how long the model takes      | its rows go to the next pass |
| 2    | an errand: as many batches as a lane runs in 50 ms | the same |
| 3    | a batch, of the errands that were refused       | the same |
| 4    | a row, of the batches that were refused         | it is refused |

A small model answers a batch of 64 rows in 60 µs, and handing one over to a lane and back costs 150 µs (measured 2026):
hence errands. Whatever a record has, an inference has the rows of one batch, and always the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import inf

from worker.settings import BatchingSettings
from worker.tools.score.files.arrays import Arrays
from worker.tools.score.files.sources import RowSource
from worker.tools.score.files.writers import ArrayWriter
from worker.tools.score.scorer import Scorer

# An errand is large enough that handing it over is not felt, and small enough that Ctrl-C is heard soon and that it is
# still in the processor's cache when its turn comes (4 MiB were 7% slower than 1 MiB, measured 2026).
ERRAND_SECONDS = 0.05
ERRAND_BYTES = 1024 * 1024


class Passes:
    """Asks for all rows that the writer wants. Owns nothing but how large a record is."""

    def __init__(
        self, scorer: Scorer, arrays: Arrays, name: str, writer: ArrayWriter, batching: BatchingSettings
    ) -> None:
        self._scorer = scorer
        self._arrays = arrays
        self._name = name
        self._writer = writer
        self._most = min(batching.max_request_rows, max(1, batching.max_batch_bytes // arrays.row_bytes))
        self._batch = min(batching.max_batch_size, self._most)

    def run(self) -> bool:
        """Whether all rows were asked for: not if the operator stops it. Those that were have their outcomes anyway."""
        first = RowSource(self._arrays, self._name, islice(self._writer.pieces(lambda _: self._batch), 1))
        is_complete = self._scorer.run(first, self._writer)
        errand = self._errand_rows()
        is_complete &= self._scorer.run(self._rows(lambda _: errand, errand), self._writer)
        while self._writer.next_pass():
            self._scorer.run_again(self._rows(self._smaller), self._writer)
        return is_complete

    def _rows(self, size: Callable[[range], int], most: int = 1) -> RowSource:
        return RowSource(self._arrays, self._name, self._writer.pieces(size), most)

    def _errand_rows(self) -> int:
        """As many batches as take so long, by what the first one took, and so much memory."""
        counts = self._scorer.counts
        in_time = ERRAND_SECONDS * counts.rows / (counts.model_seconds or inf)
        most = min(self._most, ERRAND_BYTES // self._arrays.row_bytes, in_time)
        return max(1, int(most) // self._batch) * self._batch

    def _smaller(self, refused: range) -> int:
        return self._batch if len(refused) > self._batch else 1
