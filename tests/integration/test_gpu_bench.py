"""`python -m tests.bench.gpu`, rehearsed without a GPU: a real part in a process of its own, its file and its table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MODULE = "tests.bench.gpu"
SMALL = ("--device", "cpu", "--network", "small MLP", "--precision", "FP32", "--seconds", "0.02", "--batches", "1,8")
PATIENCE = 120.0


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", MODULE, *words]
    return subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_part_leaves_its_file_and_its_table(tmp_path: Path) -> None:
    """ONNX Runtime alone on the CPU, and a part that no CPU can do: it says why, and ends nothing."""
    done = ran(*SMALL, "--part", "knee", "graphs", "--out", str(tmp_path))

    assert done.returncode == 0, done.stderr
    knee, graphs = (json.loads((tmp_path / f"gpu-{name}.json").read_text()) for name in ("knee", "graphs"))
    assert [line["batch"] for line in knee["lines"]] == [1, 8]
    assert all(line["rate"] > 0 and line["device_ms"] is None for line in knee["lines"])
    assert graphs["lines"][0]["failed"] == "AssertionError: CUDA graphs need a GPU"
    assert ran("--markdown", str(tmp_path)).stdout == done.stdout


def test_a_part_that_takes_too_long_is_cut_and_keeps_its_file(tmp_path: Path) -> None:
    """The time for all parts is over; the other one does not begin."""
    done = ran(*SMALL, "--seconds", "30", "--part", "knee", "graphs", "--out", str(tmp_path), "--limit", "8")

    assert done.returncode == 1
    knee, graphs = (json.loads((tmp_path / f"gpu-{name}.json").read_text()) for name in ("knee", "graphs"))
    assert knee["ended"] == "cut after 3 s"
    assert graphs["ended"] == "not run: the time for all parts was over"
