"""The model's process has the limits that were set or that the container leaves it, and no library without a use."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import models
from tests.logs import capture_logs
from tests.unit.test_settings import LEAST
from worker import assembled_model, telemetry
from worker.settings import load

GIB = 1 << 30
linux = pytest.mark.skipif(platform.system() != "Linux", reason="limits are read from /proc")


@linux
@pytest.mark.parametrize(
    ("given", "limit", "by"),
    [
        ({}, 2 * GIB - (128 << 20) - 3 * (64 << 20), "the container's limit"),
        ({"WORKER_MODEL__MEMORY_LIMIT": str(GIB)}, GIB, "WORKER_MODEL__MEMORY_LIMIT"),
    ],
)
def test_the_model_s_process_has_its_limit_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], limit: int, by: str
) -> None:
    """The log says it before the start. The kernel kills this process first, and numpy has one thread in it."""
    monkeypatch.setattr(assembled_model, "container_limit", lambda: 2 * GIB)
    settings = load(None, {**LEAST, "WORKER_MODEL__PATH": str(models.save(models.mlp(), tmp_path)), **given})
    events = telemetry.WorkerEvents(1)

    with ExitStack() as closing, capture_logs() as log:
        assembled_model.begin_model(settings, events, closing)()
        process = Path(f"/proc/{events.latest.host}")
        data = next(line for line in (process / "limits").read_text().splitlines() if line.startswith("Max data size"))
        score = int((process / "oom_score_adj").read_text())
        environment = (process / "environ").read_text().split("\0")

    assert log[0]["event"] == "model_host_limited"
    assert (log[0]["memory_limit"], log[0]["by"]) == (limit, by)
    assert int(data.split()[3]) == limit
    assert score == min(1000, int(Path("/proc/self/oom_score_adj").read_text()) + 500)
    assert f"OPENBLAS_NUM_THREADS={os.environ.get('OPENBLAS_NUM_THREADS', '1')}" in environment


LIBRARIES = ("onnxruntime", "pydantic_core", "confluent_kafka", "orjson")
# Starts an engine, and says which libraries its two processes have.
ENGINE = """
import os, sys
from contextlib import ExitStack
from pathlib import Path
from worker import app, assembly, telemetry
from worker.assembled_model import begin_model
from worker.settings import load

events = telemetry.WorkerEvents(1)
with ExitStack() as closing:
    begin_model(load(None, os.environ), events, closing)()
    for process in ("self", events.latest.host):
        print(Path(f"/proc/{process}/maps").read_text().replace("\\n", " "))
"""


@linux
def test_neither_process_has_a_library_that_only_the_other_needs(tmp_path: Path) -> None:
    """Each takes memory twice, and a part of every start. Buckets of the settings reach the model all the same."""
    buckets = {"ids": {"axis": 1, "boundaries": [2, 4], "pad": 0, "shared_by": {"mask": 0}}}
    given = {
        **LEAST,
        "WORKER_MODEL__PATH": str(models.save(models.bag_of_words(), tmp_path)),
        "WORKER_BATCHING__BUCKETS": json.dumps(buckets),
    }

    ended = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", ENGINE], env={**os.environ, **given}, capture_output=True, text=True, check=True
    )
    worker, host = ended.stdout.splitlines()

    assert [library in host for library in LIBRARIES] == [True, False, False, False]
    assert [library in worker for library in LIBRARIES] == [False, True, True, True]
