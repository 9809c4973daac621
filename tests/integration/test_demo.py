"""The demo, for real and small: two worker processes on the mock broker."""

from __future__ import annotations

import os

import pytest

from worker.core.failures import BadConfiguration
from worker.tools.demo.command import demo
from worker.tools.load.replica import Replica


def test_the_demo_answers_everything_and_compares_two_workers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request has one answer, both workers leave with exit code 0, and the table shows both.

    Their live pages are named, and opened on request.
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
