"""ONNX Runtime and nothing else, in a process of its own, with one thread: what there is to gain at most.

    python -m tests.bench.loops.alone PLAN MODEL BATCH ROWS SECONDS      # prints rows per second and CPU µs per row

`same` runs the same batch of raw rows again and again. The other plans run texts of ragged lengths, in the order of
their publication: `offline_padded` as they come, `offline_buckets` by bucket.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tests.bench.loops.task import model_call
from tests.bench.measuring.throughput import Figure
from tests.ragged import BOUNDARIES, Alone, Ids, bucket, long_tailed, texts

VOCABULARY = 1000
WIDTH = 256
SAME = "same"
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


def alone(plan: str, model: Path, batch: int, seconds: float, rows: int = 0) -> Figure:
    """Rows per second of the model alone, for so many seconds, or until all rows of a plan are done."""
    program = [sys.executable, "-m", "tests.bench.loops.alone", plan, *map(str, (model, batch, rows, seconds))]
    said = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()  # noqa: S603  # ours
    return Figure(float(said[0]), float(said[1]))


def _steps(plan: str, model: Path, batch: int, rows: int) -> Iterator[int]:
    """Runs a batch at each step, warm before the first, and says how many rows it had."""
    if plan == SAME:
        run, asked = model_call(str(model), batch), np.random.default_rng(3).standard_normal((batch, WIDTH), np.float32)
        yield 0
        for _ in itertools.count():
            run(asked)
            yield batch
    ragged, asked_texts = Alone(model), ragged_texts(rows)
    for boundary in BOUNDARIES:
        ragged.run([asked_texts[0][:1]] * batch, boundary)
    yield 0
    for together, length in PLANS[plan](asked_texts, batch):
        ragged.run(together, length)
        yield len(together)


def main(plan: str, model: Path, batch: int, rows: int, seconds: float) -> None:
    """In that process."""
    steps = _steps(plan, model, batch, rows)
    done = next(steps)
    began, cpu, took = time.monotonic(), time.process_time(), 0.0
    for count in steps:
        done, took = done + count, time.monotonic() - began
        if took > seconds:
            break
    sys.stdout.write(f"{done / took} {(time.process_time() - cpu) / done * 1e6}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
