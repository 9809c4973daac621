"""The tables of `bench/gpu`, and what is packed for a machine without a network."""

from __future__ import annotations

import json
from pathlib import Path

from bench.gpu import knee, main
from bench.gpu.__main__ import PARTS
from bench.gpu.results import CUT, Line, Results, cut, page, path_of
from tests.gpu.pack import wanted

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


def test_what_is_packed_is_locked_for_the_python_there() -> None:
    """By its markers and with its hashes, without NVIDIA's packages and what neither worker nor tests import."""
    assert list(wanted(CUDA_LOCK, DEVELOPMENT_LOCK)) == [
        "numpy==2.5.5 --hash=sha256:bb --hash=sha256:cc",
        "pytest==9.2.0 --hash=sha256:ff",
    ]
