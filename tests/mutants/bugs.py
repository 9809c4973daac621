"""All bugs to plant, of any kind, in one form: a name, a way to plant it, and the tests to try."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple
from unittest import mock

import pytest

import tests.conftest  # noqa: F401  # Hypothesis' settings, which pytest has from there
from tests.properties import test_mutants as simulator
from tests.properties.simulation.checker import Broken
from tests.properties.simulation.mutants import Mutant
from tests.properties.simulation.process import Spinning
from tests.unit.test_planted import PLANTED, SEEN, Planted


@dataclass(frozen=True)
class Bug:
    """A bug: `planted()` breaks the worker for a while. The first of `tests` should then fail, with a `failure`."""

    name: str
    planted: Callable[[], AbstractContextManager[object]]
    tests: Mapping[str, Callable[[], None]]
    failure: tuple[type[BaseException], ...]


class Catch(NamedTuple):
    """A failed test, and the first line of its message."""

    test: str
    said: str


Found = Sequence[Catch]


def catches(bug: Bug) -> Iterator[Catch]:
    """Plant a bug, try one test after the other, and yield the tests that notice. Other exceptions are no catch."""
    for name, test in bug.tests.items():
        with bug.planted():
            try:
                test()
            except bug.failure as failure:
                yield Catch(_test_in(failure) or name, (str(failure).splitlines() or [type(failure).__name__])[0])


def _test_in(failure: BaseException) -> str | None:
    """The test function that raised a failure."""
    names = [frame.name for frame in traceback.extract_tb(failure.__traceback__)]
    return next((name for name in reversed(names) if name.startswith("test_")), None)


def _simulated(guarantee: str, mutant: Mutant) -> Bug:
    names = [mutant.by, *(name for name in simulator.TESTS if name != mutant.by)]
    tests = {name: partial(simulator.TESTS[name], guarantee) for name in names}
    return Bug(f"{guarantee}: {mutant.what}", mutant.at_large, tests, (Broken, Spinning))


def _single(name: str, planted: Planted) -> Bug:
    def test() -> None:
        with pytest.MonkeyPatch.context() as patch:
            planted.check(patch)

    where = partial(mock.patch.object, planted.owner, planted.name, planted.body)
    return Bug(f"unit: {name}", where, {"its own": test}, SEEN)


BUGS: Mapping[str, Bug] = {
    bug.name: bug
    for bug in (
        *(_simulated(guarantee, mutant) for guarantee, mutant in simulator.CASES),
        *(_single(name, planted) for name, planted in PLANTED.items()),
    )
}


def first_catch(name: str) -> Found:
    """The first test that notices; empty if the bug survives."""
    return list(islice(catches(BUGS[name]), 1))


def all_catches(name: str) -> Found:
    """Every test that notices."""
    return list(catches(BUGS[name]))
