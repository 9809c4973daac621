"""The demo's last output: the figures, the cost of the kill, and the commands to type next."""

from __future__ import annotations

import io
import shlex
import sys

import numpy as np
import pytest
from rich.console import Console

from worker.tools.bench.figures import Flow, Heard
from worker.tools.demo.command import Killed, _show_kill, _show_next, _show_payments, _show_speed
from worker.tools.demo.digits import MODEL
from worker.tools.demo.payments import RECORDS, Scored


@pytest.fixture
def screen() -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)


def shown(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def flow(rate: float, p50: float) -> Flow:
    return Flow(rate, 0, {"p50": p50, "p99": 3 * p50}, is_paced=True)


def test_both_figures_stand_next_to_each_other(screen: Console) -> None:
    """They fit into 80 columns."""
    _show_speed(screen, (flow(8000, 0), flow(1000, 24.0)), (flow(16000, 0), flow(1000, 8.0)))

    table = shown(screen)
    assert "8,000 │           16,000 │" in table
    assert "24.0 ms │           8.0 ms │" in table
    assert max(map(len, table.splitlines())) <= 80


def test_what_a_kill_costs_is_counted(screen: Console) -> None:
    """It counts missing answers, repeated answers, and answers to broken requests."""
    codes = ["INVALID_ARGUMENT"] * 3 + [""] * 95
    heard = Heard(np.arange(98), np.arange(98.0), codes, 7, '{"error": "the value is not JSON"}')

    _show_kill(screen, Killed(100, heard, 5000.0))

    said = " ".join(shown(screen).split())
    assert "100 requests, 3 of them broken: 2 missing. 7 answers came twice" in said
    assert "5,000 ms" in said
    assert "the value is not JSON" in said


def test_payments_stand_above_their_answers(screen: Console) -> None:
    """The settings that made the answers follow."""
    _show_payments(screen, [Scored('{"id":1}', '{"id":1,"label":"ok"}'), Scored('{"id":2}', '{"error":"no"}')])

    lines = shown(screen).splitlines()
    assert lines[2:6] == ['{"id":1}', '→ {"id":1,"label":"ok"}', '{"id":2}', '→ {"error":"no"}']
    assert [line.strip() for line in lines[-7:]] == RECORDS.splitlines()


def test_it_ends_with_two_commands_to_paste(screen: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stands on one line of any length, and calls the program as the user did."""
    monkeypatch.setattr(sys, "argv", [".venv/bin/inference-worker", "demo"])
    monkeypatch.chdir(MODEL.parent)

    _show_next(screen)

    profile, init = (shlex.split(line) for line in shown(screen).splitlines() if line.startswith("  "))
    assert profile == [".venv/bin/inference-worker", "profile", "--model", MODEL.name]
    assert init == [".venv/bin/inference-worker", "init", "--model", MODEL.name]
