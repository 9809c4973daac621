"""How a message lists things of which there may be hundreds."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

MOST = 3  # a model may have an input for each of 500 columns


def listed(things: Iterable[object]) -> str:
    """The first three, and how many more there are."""
    rest = iter(things)
    named = ", ".join(map(str, islice(rest, MOST)))
    more = sum(1 for _ in rest)
    return f"{named} and {more} more" if more else named
