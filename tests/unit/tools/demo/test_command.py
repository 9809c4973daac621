"""The demo's last words: the figures, what the kill cost, and what to type next."""

from __future__ import annotations

import io
import shlex
import sys
from collections import Counter

import pytest
from rich.console import Console

from worker.tools.demo.command import _show_kill, _show_next, _show_speed
from worker.tools.demo.digits import MODEL, ReadDigit
from worker.tools.demo.scene import Tally


def tally(requests: int, answers: int, took: float = 1.0) -> Tally:
    return Tally(
        requests, {n: n / 1000 for n in range(answers)}, right=answers, took=took, newest=[ReadDigit(0, 7, 0.98)]
    )


@pytest.fixture
def screen() -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)


def shown(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_both_figures_stand_next_to_each_other(screen: Console) -> None:
    """In 80 columns, below a digit as the worker has read it."""
    _show_speed(screen, (tally(800, 800, 0.1), tally(101, 101)), (tally(800, 800, 0.05), tally(101, 101)))

    drawn, _, table = shown(screen).partition("╭")
    assert "7   98%" in drawn
    assert "800 at once" in table
    assert "8,000 │           16,000 │" in table
    assert "50.0 ms │          50.0 ms │" in table
    assert max(map(len, table.splitlines())) <= 80


def test_what_a_kill_costs_is_counted(screen: Console) -> None:
    """Missing answers, repeated ones, and those of broken requests."""
    load = tally(100, 98)
    load.repeats, load.errors = 7, Counter({"expected rows of 256 bytes": 3})

    _show_kill(screen, load)

    said = " ".join(shown(screen).split())
    assert "100 requests, 3 of them broken: 2 missing. 7 answers came twice" in said
    assert "expected rows of 256 bytes" in said


def test_it_ends_with_two_commands_to_paste(screen: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each on a line of its own however long it is, with the program as it was called."""
    monkeypatch.setattr(sys, "argv", [".venv/bin/inference-worker", "demo"])
    monkeypatch.chdir(MODEL.parent)

    _show_next(screen)

    profile, init = (shlex.split(line) for line in shown(screen).splitlines() if line.startswith("  "))
    assert profile == [".venv/bin/inference-worker", "profile", "--model", MODEL.name]
    assert init == [".venv/bin/inference-worker", "init", "--model", MODEL.name]
