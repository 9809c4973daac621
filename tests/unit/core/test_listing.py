"""A message names three things, and counts the others."""

from __future__ import annotations

import pytest

from worker.core.listing import listed


@pytest.mark.parametrize(
    ("things", "said"), [(0, ""), (1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2 and 1 more"), (500, "0, 1, 2 and 497 more")]
)
def test_three_are_named_and_the_others_counted(things: int, said: str) -> None:
    """However many there are."""
    assert listed(range(things)) == said
