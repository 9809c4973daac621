"""The commands on CUDA, each as its users type it: they say where the model runs, and what they give is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.gpu.nets import WIDTH, on_cpu
from tests.kafka.replica import PASSED_ON
from tests.models import mlp, save
from worker.tools.demo.command import demo
from worker.tools.demo.options import DemoOrder

DEVICE = "cuda"
EXACT = json.dumps({"CUDAExecutionProvider": {"use_tf32": "0"}})
PATIENCE = 120.0
ROWS = 500  # no multiple of a batch
NOTHING: Mapping[str, str] = {}


def typed(*words: str, settings: Mapping[str, str] = NOTHING) -> subprocess.CompletedProcess[str]:
    """The command, with these settings and this device. Fails unless it ends with 0."""
    chosen = {"MODEL__DEVICE": DEVICE, "MODEL__PROVIDER_OPTIONS": EXACT, **settings}
    environment = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
    environment |= {f"WORKER_{name}": value for name, value in chosen.items()}
    program = [sys.executable, "-m", "worker", *words]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_score_answers_a_file_on_the_device(gpu: str, tmp_path: Path) -> None:
    """Row by row what the CPU gives."""
    model, rows = mlp(WIDTH, (WIDTH,), 16), np.random.default_rng(5).random((ROWS, WIDTH), np.float32)
    np.save(tmp_path / "rows.npy", rows)
    words = (str(save(model, tmp_path)), str(tmp_path / "rows.npy"), "-o", str(tmp_path / "answers.npy"))

    said = typed("score", *words).stderr

    assert f" on {gpu};" in said
    assert np.allclose(np.load(tmp_path / "answers.npy"), on_cpu(model, {"x": rows})[0], rtol=1e-3, atol=1e-4)


def test_the_demo_runs_where_a_gpu_is() -> None:
    """Its workers choose their device by themselves, and answer everything."""
    assert demo(DemoOrder(), scale=0.1) == 0
