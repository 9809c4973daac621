"""What `bench` shows people: it fits, and hides nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.tools.bench.measurements import FACTS, PARTS, WORKER, accounts, measured
from worker.tools import picture
from worker.tools.bench.course import Findings
from worker.tools.bench.plot import draw
from worker.tools.bench.report import accounts_of
from worker.tools.bench.screen import show


@pytest.fixture(params=[40, 80, 160])
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """All of it, at that width."""
    monkeypatch.setenv("COLUMNS", str(request.param))
    show(accounts(), FACTS)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= max(80, request.param)
    return text


def test_no_figure_is_cut_off(shown: str) -> None:
    """An ellipsis would hide one, at 40 columns as at 160."""
    assert "…" not in shown
    for figures in ("8,050", "8,000–8,100", "5.0", "123k *", "21.0", "20.0–22.0", "42.0", "88.2", "110"):
        assert figures in shown, figures


def test_whose_figures_they_are_is_marked(shown: str) -> None:
    """A star: the generator's. A dagger: a queue grows."""
    assert "3,900 †" in shown
    assert "500 *" in shown
    assert "figures are its own" in " ".join(shown.split())


def test_lengths_that_were_made_up_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Texts of a few tokens say nothing of those of 256."""
    request = {**FACTS["request"], "open_axes": {"ids\x1b:1": {"min": 1, "max": 8}}}  # type: ignore[dict-item]

    show(accounts(), {**FACTS, "request": request})

    assert "ids\\x1b:1 is 1 to 8 long: the model's file leaves that open." in " ".join(capsys.readouterr().out.split())


def test_a_mock_is_called_one(shown: str) -> None:
    """Its figures are no broker's."""
    words = " ".join(shown.split())
    assert "mock broker inside this process" in words
    assert "A mock is not a Kafka" in words
    assert "A mock keeps no backlog" in words


def test_a_load_that_was_not_tried_is_told(shown: str) -> None:
    """As a dash, with its reason."""
    assert "Not measured (–)" in shown


def test_it_ends_with_a_verdict(shown: str) -> None:
    """In words, below all figures and warnings."""
    last = " ".join(shown.rstrip().rpartition("\n\n")[2].split())
    assert last.startswith("Batch: MAX_BATCH_SIZE=64 LINGER_MS=5 answers 5.0 times as many requests a second")


def test_what_was_interrupted_is_shown_as_far_as_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a line for a contender that had no turn."""
    show(accounts_of(Findings({WORKER.name: [measured(8000.0)]}, {}, ()), PARTS), FACTS)

    assert "one by one  " not in capsys.readouterr().out


def test_the_picture_has_every_contender(tmp_path: Path) -> None:
    """By its name, with both quantiles and the maximum; one without a latency has only that."""
    picture.save(tmp_path / "a.svg", lambda empty: draw(empty, accounts()))

    text = (tmp_path / "a.svg").read_text()
    for name in (*(part.column.name for part in PARTS), "p50", "p99", "maximum", "requests per second"):
        assert f">{name}<" in text, name


def test_a_picture_without_any_latency_can_be_drawn(tmp_path: Path) -> None:
    """A machine that kept up no load has its maxima all the same."""
    interrupted = accounts_of(Findings({WORKER.name: [measured(8000.0)]}, {}, ()), PARTS)
    picture.save(tmp_path / "a.svg", lambda empty: draw(empty, interrupted))

    assert ">maximum<" in (tmp_path / "a.svg").read_text()
