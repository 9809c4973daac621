"""`python -m bench.gpu`, rehearsed without a GPU: a real part in a process of its own, its file and its table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SMALL = ("--device", "cpu", "--network", "small MLP", "--precision", "FP32", "--batches", "1,8")
PATIENCE = 120.0


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "bench.gpu", *words]
    return subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_part_leaves_its_file_and_its_table_and_one_that_takes_too_long_is_cut(tmp_path: Path) -> None:
    """ONNX Runtime alone on the CPU; then a measurement that is longer than the time for all parts."""
    done = ran(*SMALL, "--seconds", "0.02", "--part", "knee", "--out", str(tmp_path / "done"))
    cut = ran(*SMALL, "--seconds", "30", "--part", "knee", "--out", str(tmp_path / "cut"), "--limit", "8")

    assert done.returncode == 0, done.stderr
    knee = json.loads((tmp_path / "done" / "gpu-knee.json").read_text())
    assert [line["batch"] for line in knee["lines"]] == [1, 8]
    assert all(line["rate"] > 0 for line in knee["lines"])
    assert ran("--markdown", str(tmp_path / "done")).stdout == done.stdout
    assert cut.returncode == 1
    assert json.loads((tmp_path / "cut" / "gpu-knee.json").read_text())["ended"] == "cut after 3 s"
