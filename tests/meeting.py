"""Whether the examples of a property come to the cases that it is about.

Hypothesis likes short lists and small numbers. A property may pass because none of its examples has the case in it: of
the hundred that a test tries, the same on every machine, none may be a run, a full queue or a failure too many.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_met: Counter[str] = Counter()


def met(case: str, *, is_so: bool = True) -> None:
    """The example that runs has this case in it."""
    _met[case] += is_so


@contextmanager
def meeting(*cases: str, least: int = 1) -> Iterator[None]:
    """Around a property: fails it where so few of its examples `met` one of these. Serves as a decorator, too."""
    _met.clear()
    yield
    rare = {case: _met[case] for case in cases if _met[case] < least}
    assert not rare, f"the examples do not come to what the property is about: {rare}, at least {least} are wanted"


def with_each_seed(seeds: int, walk: Callable[[random.Random], None]) -> None:
    """Walk with the dice of each seed; a failure says with which."""
    for seed in range(seeds):
        try:
            walk(random.Random(seed))
        except AssertionError as error:
            error.add_note(f"of the walk with the seed {seed}")
            raise
