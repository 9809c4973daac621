"""What the demo says in the end: the verdict first, the figures, and what to type next."""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path

import pytest
from rich.console import Console

from worker.tools.demo.command import HALVINGS, _compete
from worker.tools.demo.contender import Closed, LoadTally
from worker.tools.demo.digits import MODEL
from worker.tools.demo.report import PROMPT_MS, Result, show_next, show_report

PROMPT, LATE = PROMPT_MS / 10, PROMPT_MS * 10.0


def tally(rate: float = 1000.0, p50: float = PROMPT, *, repeats: int = 0, errors: int = 0) -> LoadTally:
    return LoadTally(100, 100, repeats, errors, 98, rate, {"p50": p50})


def result(name: str, p50: float) -> Result:
    return Result(name, 64, 4000.0, tally(p50=p50), Closed({"size": 3.0, "linger": 0.0}, 96.0))


def shown(one_by_one: float = LATE, batched: float = PROMPT, *, heap: LoadTally | None = None) -> str:
    """All of it in 80 columns, at these p50 of the two workers."""
    console = Console(file=io.StringIO(), width=80)
    results = [result("one by one", one_by_one), result("batched", batched)]
    show_report(console, [heap or tally(2000.0), tally(9000.0)], results)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("one_by_one", "batched", "told"),
    [
        (LATE, PROMPT, "half of the batched answers come within 10.0 ms. One by one falls behind there"),
        (PROMPT, PROMPT, "both keep up: this machine is busy"),
        (LATE, LATE, "This machine is busy: at a gentle rate, too, requests wait"),
    ],
)
def test_the_verdict_stands_before_the_figures(one_by_one: float, batched: float, told: str) -> None:
    """How much batching buys, and what the steady rate shows."""
    before, _, after = shown(one_by_one, batched).partition("╭")

    words = " ".join(before.split())
    assert words.startswith("Batching answers 4.5 times as many requests per second")
    assert told in words
    assert "MAX_BATCH_SIZE=64" in after
    assert "batches closed by linger" not in after, "none did"
    assert max(map(len, after.splitlines())) <= 80


def test_errors_and_repeats_are_told_below_the_figures() -> None:
    """Where there are any."""
    with_faults = shown(heap=tally(repeats=2, errors=3)).rpartition("╯")[2]

    assert "3 answers were errors." in with_faults
    assert "2 answers came twice" in with_faults
    assert "answers were errors" not in shown()


@pytest.mark.parametrize(
    ("called", "found", "typed"),
    [
        (".venv/bin/inference-worker", "/bin/inference-worker", ".venv/bin/inference-worker"),
        ("/bin/inference-worker", "/bin/inference-worker", "inference-worker"),
        ("/opt/inference-worker", None, "/opt/inference-worker"),
        ("worker/__main__.py", None, "inference-worker"),
    ],
)
def test_it_ends_with_two_commands_to_paste(
    called: str, found: str | None, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each on a line of its own however long it is, with the program as it was called."""
    monkeypatch.setattr(sys, "argv", [called, "demo"])
    monkeypatch.setattr("shutil.which", lambda _: found)
    monkeypatch.chdir(MODEL.parent)
    console = Console(file=io.StringIO(), width=80)

    show_next(console)

    assert isinstance(console.file, io.StringIO)
    profile, check = (shlex.split(line) for line in console.file.getvalue().splitlines() if line.startswith("  "))
    assert profile == [typed, "profile", MODEL.name]
    assert check[:4] == [typed, "check", "--model", MODEL.name]
    assert {"--bootstrap-servers", "--requests", "--answers", "--group"} <= set(check)


def test_a_model_that_lies_elsewhere_is_named_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an installed package."""
    monkeypatch.chdir(tmp_path)
    console = Console(file=io.StringIO(), width=80)

    show_next(console)

    assert isinstance(console.file, io.StringIO)
    assert shlex.quote(str(MODEL)) in console.file.getvalue()


class FakeLoads:
    """Loads with results that are known beforehand: at more than a rate the batching worker falls behind."""

    def __init__(self, most: float) -> None:
        self.phases: list[str] = []
        self._most = most

    def heap(self, contender: str, requests: int) -> LoadTally:
        self.phases.append(f"{contender}: {requests} at once")
        return tally(2000.0 if contender == "one by one" else 20_000.0)

    def steady(self, contender: str, rate: float, _: float) -> Result:
        self.phases.append(f"{contender}: {rate:.0f} a second")
        return result(contender, PROMPT if rate <= self._most else LATE)


@pytest.mark.parametrize(("most", "rates"), [(5000, [4000]), (2500, [4000, 2000]), (0, [4000, 2000, 1000])])
def test_the_order_of_phases_never_changes(most: float, rates: list[int]) -> None:
    """One by one first. A rate at which both fall behind is halved, twice at most, and begun anew with both."""
    loads = FakeLoads(most)

    _, results = _compete(loads, ["one by one", "batched"], 10, 4.0)  # type: ignore[arg-type,list-item]  # fakes of both

    assert len(rates) <= HALVINGS + 1
    assert [each.name for each in results] == ["one by one", "batched"]
    assert loads.phases == [
        "one by one: 10 at once",
        "batched: 10 at once",
        *(f"{name}: {rate} a second" for rate in rates for name in ("one by one", "batched")),
    ]
