"""The end of a worker, and the process that replaces it after a reply topic refused an answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.test_settings import LEAST
from worker import app, telemetry
from worker.app import REFUSED, _refused_twice, _what_was_left
from worker.core.failures import KafkaFatal, ReplyRefused, Stop
from worker.settings import load
from worker.signals import StopSignals


class Replaced(BaseException):
    """Raised in the place of an exec, which never returns."""


def ended(monkeypatch: pytest.MonkeyPatch, stop: Stop, signals: StopSignals) -> int:
    """The exit code of a worker that this failure stops."""

    def raising(*_: object) -> None:
        raise stop

    def replaced(path: str, command: Sequence[str]) -> None:
        assert [path, *command] == [sys.executable, sys.executable, *sys.orig_argv[1:]]
        raise Replaced

    monkeypatch.setattr(app, "_listen", raising)
    monkeypatch.setattr(os, "execv", replaced)
    events = telemetry.WorkerEvents(32)
    return app._ended(load(None, LEAST), signals, events)


def test_an_end_says_how_many_records_were_left() -> None:
    """A drain leaves records that have not begun after half of its time; the log's last line said otherwise."""
    assert _what_was_left(0) == "everything taken is answered and committed"
    assert "1 of the records taken" in _what_was_left(1)


def test_a_process_that_follows_two_refusals_goes_on_without_the_reply_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one, the start looks at the topic's limits again. After the second, the topic is left out."""
    monkeypatch.setenv(REFUSED, "other")
    refused = ReplyRefused("too late", "replies")

    with pytest.raises(Replaced):
        ended(monkeypatch, refused, StopSignals())
    assert _refused_twice(["replies", "other"]) == {}
    with pytest.raises(Replaced):
        ended(monkeypatch, refused, StopSignals())

    assert _refused_twice(["replies", "other"]).keys() == {"replies"}


@pytest.mark.parametrize("is_told_to_stop", [False, True])
def test_no_process_follows_another_failure_or_a_signal(
    monkeypatch: pytest.MonkeyPatch, *, is_told_to_stop: bool
) -> None:
    """These end with the exit code of a refusal by Kafka."""
    signals = StopSignals()
    if is_told_to_stop:
        signals.count(15, None)
    stop: Callable[..., Any] = ReplyRefused if is_told_to_stop else lambda why, _: KafkaFatal(why)

    assert ended(monkeypatch, stop("refused", "replies"), signals) == 4
