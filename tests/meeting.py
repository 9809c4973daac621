"""Checks that a property's examples reach the cases that the property is about.

Hypothesis likes short lists and small numbers. A property may pass because none of its examples has the case in it: a
test tries a hundred, the same on every machine, and perhaps none has a run, a full queue or one failure too many.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_met: Counter[str] = Counter()


def met(case: str, *, is_so: bool = True) -> None:
    """Count the case for the example that runs now."""
    _met[case] += is_so


@contextmanager
def meeting(*cases: str, least: int = 1) -> Iterator[None]:
    """Fail a property when fewer than `least` of its examples `met` one of the cases. Serves as a decorator, too."""
    _met.clear()
    yield
    rare = {case: _met[case] for case in cases if _met[case] < least}
    assert not rare, f"the examples do not come to what the property is about: {rare}, at least {least} are wanted"


def with_each_seed(seeds: int, walk: Callable[[random.Random], None]) -> None:
    """Run the walk once with each seed. A failure names the seed."""
    for seed in range(seeds):
        try:
            walk(random.Random(seed))
        except AssertionError as error:
            error.add_note(f"of the walk with the seed {seed}")
            raise
