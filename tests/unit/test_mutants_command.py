"""The command that plants the bugs: a bug that survives is named, and the command fails."""

from __future__ import annotations

import pytest

from tests.mutants import __main__ as command
from tests.mutants.bugs import BUGS, Bug, Catch, catches
from tests.properties.test_mutants import CASES
from tests.unit.test_planted import PLANTED


def test_every_bug_that_is_written_down_is_planted() -> None:
    """Each under a name of its own."""
    assert len(BUGS) == len(CASES) + len(PLANTED)


def test_a_test_that_fails_catches_the_bug_while_it_is_planted() -> None:
    """What passes does not, and the bug is gone between two tests."""
    is_planted: list[bool] = []

    def fails() -> None:
        raise AssertionError("a promise is broken")

    bug = Bug("bug", lambda: Planting(is_planted), {"passes": lambda: None, "fails": fails}, (AssertionError,))

    assert [catch.said for catch in catches(bug)] == ["a promise is broken"]
    assert is_planted == [True, False, True, False]


def test_an_accident_is_no_catch() -> None:
    """What breaks the test itself says nothing of the bug."""
    bug = Bug("bug", lambda: Planting([]), {"divides": lambda: print(1 // 0)}, (AssertionError,))  # noqa: T201  # never

    with pytest.raises(ZeroDivisionError):
        list(catches(bug))


def test_a_bug_that_survives_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, beside one that is caught."""
    one, other = list(BUGS)[:2]

    code = command.run([one, other], catches_all_but_the_first)

    assert code == 1
    assert f"SURVIVES {one}\n" in capsys.readouterr().out
    assert command.run([other], catches_all_but_the_first) == 0


def catches_all_but_the_first(name: str) -> list[Catch]:
    return [] if name == next(iter(BUGS)) else [Catch("test_it", "it is broken")]


class Planting:
    """Notes when it begins and ends."""

    def __init__(self, notes: list[bool]) -> None:
        self._notes = notes

    def __enter__(self) -> None:
        self._notes.append(True)

    def __exit__(self, *_: object) -> None:
        self._notes.append(False)
