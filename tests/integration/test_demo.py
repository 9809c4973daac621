"""A small real demo on the mock broker: a plain loop, and workers, one of which is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from worker.core.failures import BadConfiguration
from worker.tools.processes import Replica

PATIENCE = 60.0  # longer than any machine needs, seconds
STAYS = """
from worker.tools.demo.command import demo
from worker.tools.demo.options import DemoOrder
raise SystemExit(demo(DemoOrder(stay=True), scale=0.1))
"""


def test_the_demo_answers_everything_and_loses_nothing_by_a_kill() -> None:
    """Every request has an answer, and every broken one its error, and so has every payment.

    With `--stay` the live page has data. Ctrl-C, which all processes of a terminal hear, is a good end.
    """
    command, unbuffered = [sys.executable, "-c", STAYS], {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, start_new_session=True, env=unbuffered, text=True
    ) as process:
        assert process.stdout is not None
        said = ""
        try:
            while not (page := re.search(r"http://\S+/\s*$", said)):
                said += (line := process.stdout.readline())
                assert line or process.poll() is None, said
            before, deadline = settled(page[0].strip()), time.monotonic() + PATIENCE
            while settled(page[0].strip()) <= before:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(PATIENCE) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    shown = " ".join(said.split())
    assert "latency p99" in shown
    assert "640 requests, 6 of them broken: 0 missing. " in shown
    assert re.search(r"\d+ answers came twice", shown)
    assert "the value is not JSON" in shown
    assert '"score":0.8898261,"label":"fraud"}' in shown
    assert '{"error":"amount: expected a number, got a text"}' in shown
    assert " profile --model " in shown


def settled(page: str) -> float:
    with urllib.request.urlopen(f"{page}status", timeout=PATIENCE) as answer:  # noqa: S310 - a worker's loopback address
        return float(json.load(answer)["settled"])


def test_a_worker_that_does_not_start_is_told_with_its_log() -> None:
    """The user sees the reason, and no hang."""
    with Replica({}, os.environ) as worker, pytest.raises(BadConfiguration, match="REQUEST_TOPICS: must be set"):
        worker.wait_until_ready()
