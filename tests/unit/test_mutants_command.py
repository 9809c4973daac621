"""The command that plants the bugs: it names a bug that survives, and fails."""

from __future__ import annotations

import multiprocessing
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace

import pytest

from tests.mutants import __main__ as command
from tests.mutants.bugs import BUGS, Catch
from tests.properties.test_mutants import CASES
from tests.unit.test_planted import PLANTED


def test_every_bug_that_is_written_down_is_planted() -> None:
    """Each has its own name."""
    assert len(BUGS) == len(CASES) + len(PLANTED)


def test_a_bug_that_survives_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named; a bug that is caught is no error."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: SimpleNamespace(Pool=ThreadPool))
    one, other = list(BUGS)[:2]

    code = command.run([one, other], catches_all_but_the_first)

    assert code == 1
    assert f"SURVIVES {one}\n" in capsys.readouterr().out
    assert command.run([other], catches_all_but_the_first) == 0


def catches_all_but_the_first(name: str) -> list[Catch]:
    return [] if name == next(iter(BUGS)) else [Catch("test_it", "it is broken")]
