"""ONNX Runtime and nothing else over texts of ragged lengths: which rows share a batch, and how long they are padded.

python -m tests.bench.loops.offline PLAN MODEL BATCH ROWS SECONDS      # prints rows per second and CPU µs per row

The rows are those of `ragged_texts`, in the order in which they are published.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from tests.bench.measuring.throughput import Figure
from tests.ragged import BOUNDARIES, Alone, Ids, bucket, long_tailed, texts

VOCABULARY = 1000
Batches: TypeAlias = Iterator[tuple[Sequence[Ids], int]]  # rows, and the length that they are padded to


def ragged_texts(count: int) -> list[Ids]:
    """So many rows; of more rows these are the first."""
    return texts(long_tailed(count), VOCABULARY)


def arrival(rows: Iterable[Ids], batch: int) -> Batches:
    """As they come, padded to the longest of each batch; the last batch is not full."""
    waiting: list[Ids] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == batch:
            yield waiting, max(map(len, waiting))
            waiting = []
    if waiting:
        yield waiting, max(map(len, waiting))


def bucketed(rows: Iterable[Ids], batch: int) -> Batches:
    """Each bucket's as they come, padded to its boundary; in the end those that did not fill up."""
    waiting: dict[int, list[Ids]] = {boundary: [] for boundary in BOUNDARIES}
    for row in rows:
        boundary = bucket(len(row))
        waiting[boundary].append(row)
        if len(waiting[boundary]) == batch:
            yield waiting[boundary], boundary
            waiting[boundary] = []
    yield from ((left, boundary) for boundary, left in waiting.items() if left)


PLANS: dict[str, Callable[[Iterable[Ids], int], Batches]] = {"offline_buckets": bucketed, "offline_padded": arrival}


def offline(plan: str, model: Path, batch: int, rows: int, seconds: float) -> Figure:
    """Rows per second, over so many rows or as many as are done in so many seconds; in a process of its own."""
    program = [sys.executable, "-m", "tests.bench.loops.offline", plan, *map(str, (model, batch, rows, seconds))]
    said = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()  # noqa: S603  # ours
    return Figure(float(said[0]), float(said[1]))


def main(plan: str, model: Path, batch: int, rows: int, seconds: float) -> None:
    """In that process."""
    alone, asked = Alone(model), ragged_texts(rows)
    for boundary in BOUNDARIES:  # warm, as a worker is that has begun to answer
        alone.run([asked[0][:1]] * batch, boundary)
    began, cpu, done = time.monotonic(), time.process_time(), 0
    for together, length in PLANS[plan](asked, batch):
        alone.run(together, length)
        done += len(together)
        if time.monotonic() - began > seconds:
            break
    took = time.monotonic() - began
    sys.stdout.write(f"{done / took} {(time.process_time() - cpu) / done * 1e6}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
