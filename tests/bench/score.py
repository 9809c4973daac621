"""How fast `inference-worker score` is, beside a loop over the same file written by hand.

    python -m tests.bench.score                               # a million rows, batches of 64 and 256, 5 rounds
    python -m tests.bench.score --batch 64 --rounds 9
    python -m tests.bench.score --lines                       # JSON lines in and out: rows/s and memory alone

Rows of 256 floats (1 KiB), an MLP 256→256→16, .npy to .npy, one thread per inference, the file in the page cache. Each
run is a process of its own, timed inside from the loaded model to the finished file; the contenders take turns within a
round, and ratios are medians of ratios within a round. Memory is the most that the process ever held, as the kernel
counts it: a mapped file counts as far as it was read.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
from numpy.lib.format import open_memmap
from rich.console import Console
from rich.table import Table

from tests.models import mlp, save
from worker.inference import load
from worker.settings.for_commands import load_scoring
from worker.signals import StopSignals
from worker.tools.score.jobs import open_job
from worker.tools.score.options import ScoreOrder
from worker.tools.score.results import ScoreCounts
from worker.tools.score.scorer import Scorer

WIDTH, OUTPUTS = 256, 16
CHUNK = 50_000  # rows made at once
MIB = 1024 * 1024


class Figure(NamedTuple):
    """One run: seconds of the clock and of the processor, from loaded model to finished file; peak memory in bytes."""

    seconds: float
    cpu: float
    memory: int


def hand_loop(model: Path, source: Path, output: Path, batch: int) -> Callable[[], None]:
    """What one writes in five minutes: no checks, no messages, and a bad row ends all."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run() -> None:
        rows = np.load(source, mmap_mode="r")
        results = open_memmap(output, "w+", np.float32, (len(rows), OUTPUTS))
        for at in range(0, len(rows), batch):
            results[at : at + batch] = session.run(None, {name: rows[at : at + batch]})[0]
        results.flush()

    return run


def score(model: Path, source: Path, output: Path, batch: int) -> Callable[[], None]:
    """The command, without its bar and its summary."""
    chosen = {"WORKER_MODEL__PATH": str(model), "WORKER_BATCHING__MAX_BATCH_SIZE": str(batch)}
    settings = load_scoring(None, {"WORKER_MODEL__DEVICE": "cpu", **chosen})
    loaded = load(settings.model, max_batch_size=batch)
    scorer = Scorer(loaded, settings, ScoreCounts(batch), StopSignals())

    def run() -> None:
        with ExitStack() as closing:
            order = ScoreOrder(model=model, file=source, output=output)
            assert open_job(order, scorer, settings, print, closing).run()
        assert not scorer.counts.refused

    return run


CONTENDERS = {"hand_loop": hand_loop, "score": score}


def contend(name: str, model: str, source: str, output: str, batch: str) -> None:
    """In a process of its own: one run, its figure on standard output."""
    run = CONTENDERS[name](Path(model), Path(source), Path(output), int(batch))
    began, cpu = time.monotonic(), time.process_time()
    run()
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    print(json.dumps([seconds, cpu, peak_memory()]))  # noqa: T201  # read by `measure`


def peak_memory() -> int:
    """The most that this process ever held, bytes (Linux). Not getrusage's: that begins with what its parent held."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def measure(name: str, model: Path, source: Path, output: Path, batch: int) -> Figure:
    """One run into a fresh file."""
    output.unlink(missing_ok=True)
    arguments = [name, str(model), str(source), str(output), str(batch)]
    done = subprocess.run(  # noqa: S603  # this module again
        [sys.executable, "-m", "tests.bench.score", "contend", *arguments], check=True, stdout=subprocess.PIPE
    )
    return Figure(*json.loads(done.stdout))


def compare(folder: Path, rows: int, batches: Sequence[int], rounds: int, console: Console) -> None:
    """Take turns, look whether the results are the same, then show the medians."""
    model, source = save(mlp(WIDTH, (WIDTH,), OUTPUTS), folder), make_rows(folder, rows)
    outputs = {name: folder / f"{name}.npy" for name in CONTENDERS}
    shown = Table("batch", "contender", "rows/s", "min-max", "x hand loop", "CPU us/row", "x hand loop", "peak MiB")
    for batch in batches:
        figures: dict[str, list[Figure]] = {name: [] for name in CONTENDERS}
        for number in range(rounds + 1):
            for name in list(CONTENDERS)[:: 1 if number % 2 else -1]:
                figures[name].append(measure(name, model, source, outputs[name], batch))
        a, b = (np.load(path, mmap_mode="r") for path in outputs.values())
        assert np.array_equal(a, b), "the results differ"
        for name, (_, *runs) in figures.items():  # without the first round: it warms the page cache
            base = figures["hand_loop"][1:]
            speeds = [rows / run.seconds for run in runs]
            shown.add_row(
                str(batch),
                name,
                f"{statistics.median(speeds):,.0f}",
                f"{min(speeds):,.0f}-{max(speeds):,.0f}",
                f"{statistics.median(b.seconds / a.seconds for a, b in zip(runs, base, strict=True)):.2f}",
                f"{statistics.median(run.cpu for run in runs) / rows * 1e6:.2f}",
                f"{statistics.median(a.cpu / b.cpu for a, b in zip(runs, base, strict=True)):.2f}",
                f"{max(run.memory for run in runs) / MIB:,.0f}",
            )
    console.print(shown)


def lines(folder: Path, rows: int, batches: Sequence[int], console: Console) -> None:
    """JSON lines: there is no loop worth comparing with, since parsing is nearly all of it."""
    model, source = save(mlp(WIDTH, (WIDTH,), OUTPUTS), folder), make_lines(folder, rows)
    for batch in batches:
        figure = measure("score", model, source, folder / "answers.jsonl", batch)
        console.print(
            f"batch {batch}: {rows / figure.seconds:,.0f} lines/s of {source.stat().st_size / rows:,.0f} bytes, "
            f"CPU {figure.cpu / rows * 1e6:.1f} us/line, peak {figure.memory / MIB:,.0f} MiB"
        )


def make_rows(folder: Path, rows: int) -> Path:
    """So many random rows in a .npy."""
    path = folder / "rows.npy"
    rng = np.random.default_rng(3)
    array = open_memmap(path, "w+", np.float32, (rows, WIDTH))
    for at in range(0, rows, CHUNK):
        array[at : at + CHUNK] = rng.standard_normal((min(CHUNK, rows - at), WIDTH), dtype=np.float32)
    return path


def make_lines(folder: Path, rows: int) -> Path:
    """So many requests of one random row each, a thousand different ones."""
    path = folder / "requests.jsonl"
    data = np.random.default_rng(3).standard_normal((1000, WIDTH)).round(4).tolist()
    requests = [{"inputs": [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": row}]} for row in data]
    block = "".join(json.dumps(request) + "\n" for request in requests)
    with path.open("w") as file:
        for _ in range(rows // 1000):
            file.write(block)
    return path


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare `score` with a loop written by hand.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lines", action="store_true", help="JSON lines instead, without a comparison")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory() as folder:
        if asked.lines:
            lines(Path(folder), asked.rows, asked.batch, console)
        else:
            compare(Path(folder), asked.rows, asked.batch, asked.rounds, console)


if __name__ == "__main__":
    if sys.argv[1:2] == ["contend"]:
        contend(*sys.argv[2:])
    else:
        main()
