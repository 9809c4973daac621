"""A short real measurement: a worker, two loops and a load on the mock broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.models import mlp, save
from worker import cli

PATIENCE = 60.0  # longer than any machine needs, seconds


@pytest.mark.parametrize("encoding", ["rows", pytest.param("json", marks=pytest.mark.slow)])
def test_the_worker_is_measured_next_to_two_loops(tmp_path: Path, encoding: str) -> None:
    """Each has figures at the maximum and at the rate; the output names the limit."""
    asked = ["bench", str(save(mlp(), tmp_path)), "--seconds", "0.5", "--rate", "50", "--encoding", encoding, "--json"]

    run = CliRunner().invoke(cli.app, asked)

    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert found["broker"] is None
    assert [each["name"] for each in found["contenders"]] == ["the worker", "the plain loop", "one by one"]
    for each in found["contenders"]:
        assert each["maximum"]["requests_per_second"] > 50
        assert each["steady"]["requests_per_second"] > 10
        assert each["maximum"]["unanswered"] == each["steady"]["unanswered"] == 0
        assert not each["errors"]
    assert found["costs"]["model_us"] > 0
    assert found["limit"] in {"model", "encoding", "loop", "generator", "machine"}
    assert "limit" in found["verdict"][-1] or "limit" in " ".join(found["verdict"])


def test_ctrl_c_leaves_no_process_behind() -> None:
    """It ends at once, with the exit code of a partly done command."""
    command = [sys.executable, "-m", "worker", "bench", "--seconds", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as bench:
        deadline = time.monotonic() + PATIENCE
        while not any(children.read_text() for children in Path(f"/proc/{bench.pid}/task").glob("*/children")):
            assert bench.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(2)
        os.killpg(bench.pid, signal.SIGINT)
        _, errors = bench.communicate(timeout=PATIENCE)

    assert bench.returncode == 7, errors
    assert b"interrupted" in errors
    assert b"Traceback" not in errors
    assert is_gone(bench.pid)


def is_gone(group: int) -> bool:
    """True if all processes of a group have ended; Python's own helpers need a moment more."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
