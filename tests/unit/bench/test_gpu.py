"""What the tables of tests/bench/gpu say of a run, and what is packed for a machine without a network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.bench.gpu.__main__ import PARTS
from tests.bench.gpu.networks import NETWORKS, of_pixels
from tests.bench.gpu.parts import knee, main, ragged
from tests.bench.gpu.pictures import draw
from tests.bench.gpu.results import CUT, DONE, Line, Results, cut, path_of
from tests.bench.gpu.tables import page
from tests.gpu.nets import in_half
from tests.gpu.pack import wanted
from tests.models import identity

PART = knee.PART
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


def test_a_run_that_is_cut_keeps_what_it_has(tmp_path: Path) -> None:
    """The file is whole after each line, and says so."""
    results = Results(tmp_path, PART.name, {"about": "a machine"})
    for line in LINES:
        results.add(line)

    found = json.loads(path_of(tmp_path, PART.name).read_text())

    assert found["lines"] == LINES
    assert found["ended"] == CUT
    assert f"- {CUT}" in page(tmp_path, PARTS).splitlines()


def test_who_was_ended_is_said_to_be(tmp_path: Path) -> None:
    """Whether it had begun or not; its lines stay."""
    Results(tmp_path, PART.name, {}).add(LINES[0])

    for part, why in ((PART, "cut after 5 s"), (ragged.PART, "not run: no Kafka")):
        cut(tmp_path, part.name, why)

    shown = page(tmp_path, PARTS)
    assert "- cut after 5 s" in shown
    assert "- not run: no Kafka" in shown
    assert "| small MLP | FP32 | 1 |" in shown


def test_what_is_missing_stands_there_with_its_reason(tmp_path: Path) -> None:
    """A dash in the table, the reason once beneath it; a case that failed has its own, and no row."""
    results = Results(tmp_path, PART.name, {"about": "a machine"})
    for line in LINES:
        results.add({**line, "device_ms": None, "missing": "no GPU"})
    results.add({**OF, "network": "large MLP", "failed": "MemoryError: too much"})
    results.end(DONE)

    shown = page(tmp_path, PARTS).splitlines()

    assert "| small MLP | FP32 | 1 | - | 1 | - | - | 1,000 |" in shown
    assert shown.count("- missing: no GPU") == 1
    assert "- large MLP, FP32: MemoryError: too much" in shown
    assert not [line for line in shown if line.startswith("| large MLP")]
    assert not [line for line in shown if DONE in line]


def test_the_knee_of_each_network_is_told() -> None:
    """Nine tenths of the best rate are enough."""
    (said,) = knee.notes(LINES)

    assert said.startswith("small MLP, FP32: the knee is at 8 rows, 93% of the best")


def test_what_was_measured_is_drawn(tmp_path: Path) -> None:
    """The share of each contender and the knee, by the name of the network; nothing of a part that was not run."""
    measured = [
        {**OF, "contender": name, "share": share} for name, share in (("alone", 1.0), ("worker, two lanes", 0.86))
    ]
    for part, lines in ((main.PART, measured), (knee.PART, LINES)):
        results = Results(tmp_path, part.name, {})
        for line in (*lines, {**OF, "network": "large MLP", "failed": "no memory"}):
            results.add(line)

    draw(tmp_path, tmp_path)
    drawn = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}

    assert set(drawn) == {"gpu-knee.svg", "gpu-share.svg"}
    assert all("small MLP, FP32" in picture and "large MLP" not in picture for picture in drawn.values())
    assert ">0.86<" in drawn["gpu-share.svg"]
    path_of(tmp_path, main.PART.name).unlink()
    draw(tmp_path, elsewhere := tmp_path / "elsewhere")
    assert [path.name for path in elsewhere.iterdir()] == ["gpu-knee.svg"]


def test_the_last_part_of_the_ragged_run_is_compared_with_its_first() -> None:
    """In rate and in memory, each way of padding by itself."""
    lines: list[Line] = [
        {"what": what, "slot": slot, "rate": rate, "used_mib": used}
        for what in ragged.WAYS
        for slot, rate, used in ((1, 100.0, 500.0), (2, 90.0, 520.0), (3, 95.0, 530.0))
    ]

    assert ragged.notes(lines) == [
        f"{what}: part 3 has 0.95 of the first one's rate, and +30 MiB" for what in ragged.WAYS
    ]


def test_every_part_has_a_name_of_its_own_and_columns_for_its_labels() -> None:
    """Or a table would not say what its lines are of."""
    assert len({part.name for part in PARTS}) == len(PARTS)
    assert all(part.columns[0].key == "network" for part in PARTS)
    assert len({network.title for network in NETWORKS}) == len(NETWORKS)


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
