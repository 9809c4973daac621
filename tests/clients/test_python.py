"""The Python client of `schemas/README.md`, run as on the page, against a worker on a real Kafka."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnxruntime import InferenceSession

from tests.clients.stage import PROGRAMS, Stage, block, stage
from tests.kafka.cluster import Cluster


@pytest.fixture(scope="module")
def python(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage where the page's requests are published."""
    with stage(kafka, tmp_path_factory) as found:
        found.sh("python-protoc")
        found.run("python", str(found.program("publish.py")))
        yield found


def test_each_encoding_gets_its_answer_and_no_repeat_is_seen(python: Stage) -> None:
    """The reader prints the page's output, although each answer came twice."""
    python.repeat_and_end()

    lines = python.lines(["python", str(python.program("answers.py"))], until="end ")

    assert lines == [*block("answers").text.splitlines(), "end 0.5 0.25"]


def test_the_page_makes_the_model_that_it_speaks_of(tmp_path: Path) -> None:
    """A reader who runs the page's programs needs a model that gives the page's answers."""
    subprocess.run([sys.executable, PROGRAMS / "model.py"], cwd=tmp_path, check=True)

    (answer,) = InferenceSession(tmp_path / "scale.onnx").run(None, {"x": np.array([[0.1, 0.2, 0.3]], np.float32)})

    assert answer.tolist() == [[0.5, 0.25]]
