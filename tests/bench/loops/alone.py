"""ONNX Runtime and nothing else: the same batch again and again, in a process of its own, with one thread.

python -m tests.bench.loops.alone MODEL BATCH SECONDS      # prints rows per second and CPU µs per row
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from tests.bench.loops.task import model_call
from tests.bench.measuring.throughput import Figure


def alone(model: Path, batch: int, seconds: float) -> Figure:
    """Rows per second of the model alone."""
    program = [sys.executable, "-m", "tests.bench.loops.alone", str(model), str(batch), str(seconds)]
    said = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()  # noqa: S603  # ours
    return Figure(float(said[0]), float(said[1]))


def main(model: str, batch: int, seconds: float) -> None:
    """In that process."""
    run = model_call(model, batch)
    rows = np.random.default_rng(3).standard_normal((batch, 256), dtype=np.float32)
    began, cpu, done = time.monotonic(), time.process_time(), 0
    while (now := time.monotonic()) - began < seconds:
        run(rows)
        done += batch
    sys.stdout.write(f"{done / (now - began)} {(time.process_time() - cpu) / done * 1e6}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
