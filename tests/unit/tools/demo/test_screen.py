"""What the demo shows while it runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from worker.tools.demo.digits import ReadDigit, held_out
from worker.tools.demo.screen import CAPTION, DemoScreen


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=True, _environ={})


def frame(console: Console, screen: DemoScreen) -> list[str]:
    """What stands on the screen now."""
    with console.capture() as drawn:
        console.print(screen._picture(), no_wrap=True)
    return [line for line in drawn.get().splitlines() if line.strip()]


def test_a_strip_of_digits_has_a_caption(console: Console) -> None:
    """And stands there only while answers come."""
    screen = DemoScreen(console, held_out())
    screen.begin("a", "one by one: 10 at once", 10)
    empty = frame(console, screen)

    screen.show(2, [ReadDigit(0, 7, 0.98), ReadDigit(1, None, 0.0)])

    drawn = frame(console, screen)
    assert (len(empty), len(drawn)) == (1, 1 + 1 + 4 + 1)
    assert CAPTION in drawn[1]
    assert "7   98%" in drawn[-1]
    assert "error" in drawn[-1]


def test_a_phase_that_begins_anew_keeps_its_place(console: Console) -> None:
    """With its new load, from nothing."""
    screen = DemoScreen(console, held_out())
    for phase in ("slow", "fast"):
        screen.begin(phase, f"{phase}: 4,000 a second", 16_000)
        screen.show(16_000, [])

    screen.begin("slow", "slow: 2,000 a second", 8000)

    first, second = frame(console, screen)
    assert "slow: 2,000 a second" in first
    assert "0/8000" in first
    assert "16000/16000" in second
