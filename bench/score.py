"""Compares `inference-worker score` with a loop by hand over one file: rows a second, CPU and memory.

    python -m bench.score                                     # a million rows, batches of 64 and 256, 5 rounds
    python -m bench.score --batch 64 --rounds 9

Rows of 256 floats (1 KiB), an MLP 256→256→16, .npy to .npy, one thread an inference, the file in the page cache. Each
run is a process of its own, timed from start to end. A run over 64 rows counts as the start; the median of its rounds
is subtracted. Contenders take turns within a round. Memory is the most that the process ever held: of a mapped file,
the part that was read counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.lib.format import open_memmap
from rich.console import Console

from bench.ground import OUTPUTS, WIDTH
from bench.loops.task import model_call
from bench.tables import Section, show
from bench.turns import take_turns
from tests.models import mlp, save

HOW = "Rows/s and CPU without the start; the start in seconds."
FEW = 64  # rows of a run that is nearly all startup
HAND, SCORE = "hand_loop", "score"


class Figure(NamedTuple):
    """The figures of one run: seconds of the clock, CPU seconds, peak memory in MiB."""

    seconds: float
    cpu: float
    memory: float


def hand_loop(model: str, source: str, output: str, batch: int) -> None:
    """Runs the loop that one writes in five minutes: no checks, no messages, and a bad row ends it."""
    run, rows = model_call(model, batch), np.load(source, mmap_mode="r")
    results = open_memmap(output, "w+", np.float32, (len(rows), OUTPUTS))
    for at in range(0, len(rows), batch):
        results[at : at + batch] = run(rows[at : at + batch])
    results.flush()


def measure(name: str, model: Path, source: Path, batch: int) -> Figure:
    """Measures one run into a fresh file."""
    output = model.parent / f"{name}.npy"
    output.unlink(missing_ok=True)
    if name == HAND:
        program = ["-m", "bench.score", "contend", str(model), str(source), str(output), str(batch)]
    else:
        program = ["-m", "worker", "score", str(model), str(source), "--output", str(output)]
    own = {"WORKER_BATCHING__MAX_BATCH_SIZE": str(batch), "WORKER_MODEL__DEVICE": "cpu"}
    began = time.monotonic()
    with subprocess.Popen([sys.executable, *program], env=os.environ | own, stderr=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{name} ended with {process.returncode}"
    return Figure(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def section(folder: Path, rows: int, batch: int, rounds: int) -> Section:
    """Let the contenders take turns, check that the results are equal, and return the table of the medians."""
    model = save(mlp(WIDTH, (WIDTH,), OUTPUTS), folder)
    whole, few = (make_rows(folder, count) for count in (rows, FEW))
    found = take_turns(
        [HAND, SCORE],
        rounds,
        lambda name: (measure(name, model, few, batch), measure(name, model, whole, batch)),
        lambda _: None,
    )
    ours, theirs = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in (SCORE, HAND))
    assert np.array_equal(ours, theirs), "the results differ"
    lines = []
    for name, runs in found.items():
        start, cpu = (statistics.median(run[at] for run, _ in runs) for at in (0, 1))
        seconds = statistics.median(run.seconds for _, run in runs) - start
        used = statistics.median(run.cpu for _, run in runs) - cpu
        memory = max(run.memory for _, run in runs)
        lines.append([name, f"{rows / seconds:,.0f}", f"{used / rows * 1e6:.2f}", f"{start:.2f}", f"{memory:,.0f}"])
    columns = ("contender", "rows/s", "CPU us/row", "start s", "peak MiB")
    return Section(f"Files, batch {batch}", HOW, columns, lines)


def make_rows(folder: Path, rows: int) -> Path:
    """Writes a .npy of so many random rows."""
    path = folder / f"rows-{rows}.npy"
    array = open_memmap(path, "w+", np.float32, (rows, WIDTH))
    some = np.random.default_rng(3).standard_normal((min(rows, 50_000), WIDTH), np.float32)
    for at in range(0, rows, len(some)):
        array[at : at + len(some)] = some[: rows - at]
    return path


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare `score` with a loop written by hand.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory() as folder:
        for batch in asked.batch:
            show(section(Path(folder), asked.rows, batch, asked.rounds), console)


if __name__ == "__main__":
    if sys.argv[1:2] == ["contend"]:
        hand_loop(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main()
