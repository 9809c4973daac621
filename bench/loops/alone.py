"""ONNX Runtime alone, in a process of its own, with one thread: the upper limit of what a worker can reach.

    python -m bench.loops.alone MODEL BATCH SECONDS      # prints rows per second and CPU µs per row

It runs one batch of raw rows again and again.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from bench.ground import WIDTH
from bench.loops.task import model_call
from bench.turns import Figure


def alone(model: Path, batch: int, seconds: float) -> Figure:
    """Measures rows per second of the model alone, for so many seconds."""
    program = [sys.executable, "-m", "bench.loops.alone", *map(str, (model, batch, seconds))]
    said = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()
    return Figure(float(said[0]), float(said[1]))


def main(model: str, batch: int, seconds: float) -> None:
    """Run the loop, in the process of its own."""
    run, asked = model_call(model, batch), np.random.default_rng(3).standard_normal((batch, WIDTH), np.float32)
    began, cpu, done = time.monotonic(), time.process_time(), 0
    while (took := time.monotonic() - began) < seconds or not done:
        run(asked)
        done += batch
    sys.stdout.write(f"{done / took} {(time.process_time() - cpu) / done * 1e6}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
