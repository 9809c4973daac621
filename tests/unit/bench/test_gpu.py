"""The tables of `bench/gpu`, and what is packed for a machine without a network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from bench.gpu import knee, main
from bench.gpu.__main__ import PARTS
from bench.gpu.networks import of_pixels
from bench.gpu.results import CUT, DONE, Line, Results, cut, page, path_of
from tests.gpu.nets import in_half
from tests.gpu.pack import wanted
from tests.models import identity

OF: Line = {"network": "small MLP", "precision": "FP32"}
LINES: list[Line] = [
    {**OF, "batch": rows, "run_ms": 1.0, "rate": rate} for rows, rate in ((1, 1e3), (8, 7e3), (64, 7.5e3))
]
CUDA_LOCK = """# a comment
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:aa
numpy==2.5.5 ; python_full_version >= '3.12' \\
    --hash=sha256:bb \\
    --hash=sha256:cc
nvidia-cublas==13.1 ; sys_platform == 'linux' \\
    --hash=sha256:dd
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:ee
"""
DEVELOPMENT_LOCK = """pytest==9.2.0 \\
    --hash=sha256:ff
ruff==0.17.5 \\
    --hash=sha256:00
"""


def test_a_run_that_is_cut_keeps_what_it_has_and_says_so(tmp_path: Path) -> None:
    """The file is whole after each line. A part that never began says why, too."""
    results = Results(tmp_path, knee.PART.name, {"about": "a machine"})
    for line in LINES:
        results.add(line)
    found = json.loads(path_of(tmp_path, knee.PART.name).read_text())

    for part, why in ((knee.PART, "cut after 5 s"), (main.PART, "not run: no Kafka")):
        cut(tmp_path, part.name, why)

    assert (found["lines"], found["ended"]) == (LINES, CUT)
    shown = page(tmp_path, PARTS)
    assert "- cut after 5 s" in shown
    assert "- not run: no Kafka" in shown
    assert "| small MLP | FP32 | 1 |" in shown


def test_what_is_missing_stands_there_with_its_reason(tmp_path: Path) -> None:
    """A dash in the table, the reason once beneath it; a case that failed has its own, and no row."""
    results = Results(tmp_path, knee.PART.name, {"about": "a machine"})
    for line in LINES:
        results.add({**line, "other_ms": None, "missing": "no GPU"})
    results.add({**OF, "network": "large MLP", "failed": "MemoryError: too much"})
    results.end(DONE)

    shown = page(tmp_path, PARTS).splitlines()

    assert "| small MLP | FP32 | 1 | - | 1 | - | 1,000 |" in shown
    assert shown.count("- missing: no GPU") == 1
    assert "- large MLP, FP32: MemoryError: too much" in shown
    assert not [line for line in shown if line.startswith("| large MLP")]
    assert "- small MLP, FP32: the knee is at 8 rows, 93% of the best, 7.0 times the first" in shown


@pytest.mark.parametrize("half", [False, True])
def test_pixels_are_scaled_in_the_graph(half: bool) -> None:  # noqa: FBT001 - a parameter of pytest's
    """Bytes go in, and the network sees 0 to 1."""
    model = identity("FP32", (4,))
    session = onnxruntime.InferenceSession(
        of_pixels(in_half(model) if half else model), providers=["CPUExecutionProvider"]
    )

    (found,) = session.run(None, {"x": np.array([[0, 51, 102, 255]], np.uint8)})

    assert found.dtype == (np.float16 if half else np.float32)
    assert found[0].tolist() == pytest.approx([0, 0.2, 0.4, 1], abs=1e-3)


def test_what_is_packed_is_locked_for_the_python_there() -> None:
    """By its markers and with its hashes, without NVIDIA's packages and what neither worker nor tests import."""
    assert list(wanted(CUDA_LOCK, DEVELOPMENT_LOCK)) == [
        "numpy==2.5.5 --hash=sha256:bb --hash=sha256:cc",
        "pytest==9.2.0 --hash=sha256:ff",
    ]
