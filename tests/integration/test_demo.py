"""The demo, for real and small: two worker processes on the mock broker."""

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
from worker.tools.bench.replica import Replica
from worker.tools.demo.command import demo

PATIENCE = 60.0  # longer than any machine needs, seconds
UNBUFFERED = {**os.environ, "PYTHONUNBUFFERED": "1"}


def test_the_demo_answers_everything_and_compares_two_workers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request has one answer, both workers leave with exit code 0, and the table shows both, below the verdict.

    Their live pages are named, and opened on request. It ends with what to type next.
    """
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)

    code = demo(at_once=200, seconds=0.5, open_pages=True)

    shown = capsys.readouterr().out
    assert code == 0, shown
    assert "The broker is a mock" in shown
    assert "MAX_BATCH_SIZE=1 " in shown
    assert "MAX_BATCH_SIZE=64" in shown
    assert "latency p99" in shown
    assert len(opened) == len(set(opened)) == 2
    assert all(f"{url}/" in shown for url in opened)
    assert shown.index("at once") < shown.index("Batching answers") < shown.index("MAX_BATCH_SIZE=1 ")
    assert " profile " in shown.splitlines()[-3]
    assert " check --model " in shown.splitlines()[-1]


STAYS = "from worker.tools.demo.command import demo; raise SystemExit(demo(at_once=200, seconds=0.5, stay=True))"


def test_pages_stay_up_until_ctrl_c() -> None:
    """With something to see on both. Ctrl-C, which all processes of a terminal hear, is a good end."""
    command = [sys.executable, "-c", STAYS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, env=UNBUFFERED, text=True) as demo:
        assert demo.stdout is not None
        try:
            while "Until Ctrl-C" not in (line := demo.stdout.readline()):
                assert line or demo.poll() is None
            pages = [re.findall(r"http://\S+/", demo.stdout.readline())[0] for _ in range(2)]
            before = [settled(page) for page in pages]
            deadline = time.monotonic() + PATIENCE
            while not all(settled(page) > first for page, first in zip(pages, before, strict=True)):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            os.killpg(demo.pid, signal.SIGINT)
            assert demo.wait(PATIENCE) == 0
        finally:
            if demo.poll() is None:
                os.killpg(demo.pid, signal.SIGKILL)


def settled(page: str) -> float:
    with urllib.request.urlopen(f"{page}status", timeout=PATIENCE) as answer:  # noqa: S310 - a worker's loopback address
        return float(json.load(answer)["settled"])


def test_a_worker_that_does_not_start_is_told_with_the_end_of_its_log() -> None:
    """The user sees why, not that it hangs."""
    with Replica({"KAFKA__GROUP_ID": "g"}, os.environ) as replica, pytest.raises(BadConfiguration) as failure:
        replica.wait_until_ready()

    assert "exited with 2" in str(failure.value)
    assert "WORKER_KAFKA__REQUEST_TOPICS: must be set" in str(failure.value)


def test_a_worker_that_is_gone_when_it_is_asked_is_told_with_the_end_of_its_log() -> None:
    """A worker that dies under its load ends the demo with its own words, not with a refused connection."""
    with Replica({"KAFKA__GROUP_ID": "g"}, os.environ) as replica:
        with pytest.raises(BadConfiguration):
            replica.wait_until_ready()

        with pytest.raises(BadConfiguration, match="must be set"):
            replica.counts("records_settled_total")
