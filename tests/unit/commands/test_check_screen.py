"""What `check` writes of the group: how many requests wait, and what may be counted among them."""

from __future__ import annotations

import pytest

from worker.commands.check_screen import group_rows
from worker.kafka.survey import GroupFacts, Progress

MARKERS = "transaction markers count as one each"


@pytest.mark.parametrize(
    ("waiting", "told", "has_note"),
    [
        (0, "0 requests wait (", False),
        (1, "1 request waits (", True),
        (3, "3 requests wait (", True),
        (4, "4 requests wait (", False),
        (1000, "1,000 requests wait (", False),
    ],
)
def test_a_lag_that_may_be_markers_alone_says_so(waiting: int, told: str, has_note: bool) -> None:  # noqa: FBT001 - a case
    """One for each of three partitions, and no more."""
    rows = list(group_rows(GroupFacts("empty", 0, [Progress("requests", 3, 3, waiting, 0)])))

    assert rows[1][0] == "requests"
    assert rows[1][1].startswith(told)
    assert (("", MARKERS) in rows) == has_note
