"""The command that plants the bugs: a bug that survives is named, and the command fails."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace

import pytest

from tests.mutants import __main__ as command
from tests.mutants.bugs import BUGS, Bug, Catch, catches
from tests.properties.test_mutants import CASES
from tests.unit.test_planted import PLANTED


def test_every_bug_that_is_written_down_is_planted() -> None:
    """Each under a name of its own."""
    assert len(BUGS) == len(CASES) + len(PLANTED)


def test_a_test_that_fails_catches_the_bug_while_it_is_planted() -> None:
    """A test that passes does not, and an accident is no catch: it says nothing of the bug."""
    is_planted: list[bool] = []

    @contextmanager
    def planted() -> Iterator[None]:
        is_planted.append(True)
        yield
        is_planted.append(False)

    def fails() -> None:
        raise AssertionError("a promise is broken")

    def breaks() -> None:
        raise ZeroDivisionError

    bug = Bug("bug", planted, {"passes": lambda: None, "fails": fails, "breaks": breaks}, (AssertionError,))
    found = catches(bug)

    assert next(found).said == "a promise is broken"
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert is_planted == [True, False, True, False, True]


def test_a_bug_that_survives_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, next to one that is caught."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: SimpleNamespace(Pool=ThreadPool))
    one, other = list(BUGS)[:2]

    code = command.run([one, other], catches_all_but_the_first)

    assert code == 1
    assert f"SURVIVES {one}\n" in capsys.readouterr().out
    assert command.run([other], catches_all_but_the_first) == 0


def catches_all_but_the_first(name: str) -> list[Catch]:
    return [] if name == next(iter(BUGS)) else [Catch("test_it", "it is broken")]
