"""The measurement, for real and short: workers, loops and a load on the mock broker."""

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
SHORT = ("--rounds", "1", "--seconds", "0.5", "--json")


def test_contenders_are_measured_side_by_side(tmp_path: Path) -> None:
    """Two settings, the loop that answers one by one, and the one that copies: each has its figures."""
    model, plot = save(mlp(), tmp_path), tmp_path / "latency.svg"
    sets = ("--set", "MAX_BATCH_SIZE=64 LINGER_MS=1", "--set", "MAX_BATCH_SIZE=2")

    run = CliRunner().invoke(cli.app, ["bench", str(model), *SHORT, *sets, "--rates", "50", "--plot", str(plot)])

    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert found["broker"]["is_embedded"]
    assert [c["kind"] for c in found["contenders"]] == ["worker", "worker", "one_by_one", "pass_through"]
    for contender in found["contenders"]:
        (steady,) = contender["steady"]
        assert contender["maximum"]["requests_per_second"]["median"] > 50
        assert steady["requests_per_second"]["median"] > 10
        assert not contender["errors"]
        assert contender["maximum"]["unanswered"] == steady["unanswered"] == 0
        if steady["rounds"] and not steady["is_of_generator"]:
            assert 0 < steady["latency_ms"]["p50"]["median"] < 60_000
    large, small, *_ = found["contenders"]
    assert large["maximum"]["rows_per_batch"]["median"] > small["maximum"]["rows_per_batch"]["median"]
    assert 0 < large["maximum"]["batch_fill"]["median"] <= 1
    assert 0 < large["maximum"]["lane_busy"]["median"] < 1.2
    assert plot.read_text().count("MAX_BATCH_SIZE=2") >= 1


@pytest.mark.slow
def test_any_encoding_can_be_measured() -> None:
    """The loop that answers one by one reads it, too; no contender answers with errors."""
    asked = ["bench", *SHORT, "--rates", "20", "--encoding", "binary", "--rows-per-request", "3"]

    run = CliRunner().invoke(cli.app, asked)

    assert run.exit_code == 0, run.output
    size = pytest.approx(850, rel=0.1)
    assert json.loads(run.stdout)["request"] == {"encoding": "binary", "rows": 3, "bytes": size, "open_axes": {}}


def test_ctrl_c_leaves_no_process_behind() -> None:
    """It ends at once, as a command that did a part of its work."""
    command = [sys.executable, "-m", "worker", "bench", "--rounds", "50", "--seconds", "0.5", "--rates", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as bench:
        wait_for_a_worker(bench)
        time.sleep(2)
        os.killpg(bench.pid, signal.SIGINT)
        _, errors = bench.communicate(timeout=PATIENCE)

    assert bench.returncode == 7, errors
    assert b"interrupted" in errors
    assert b"Traceback" not in errors
    assert is_gone(bench.pid)


def wait_for_a_worker(bench: subprocess.Popen[bytes]) -> None:
    """Until it has started its first process."""
    deadline = time.monotonic() + PATIENCE
    while not any(children.read_text() for children in Path(f"/proc/{bench.pid}/task").glob("*/children")):
        assert bench.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_gone(group: int) -> bool:
    """Whether all processes of a group have ended; what Python itself has started needs a moment more."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
