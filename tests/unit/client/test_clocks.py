"""A client whose clock is behind hears of it, from the answers that say its requests were late."""

from __future__ import annotations

import time

import pytest

from inference_client.clocks import doubted
from inference_client.encoding import Encoder
from inference_client.errors import DeadlineExceeded, Internal
from tests.unit.client.builders import SIGNATURE, Record

NOW = 1_764_000_000.0
LATE = DeadlineExceeded("not run: the deadline was 55000 ms ago", "requests/0/7")


@pytest.mark.parametrize(("kind", "whose"), [(1, "the worker's"), (2, "the brokers'")])
def test_an_answer_from_the_future_names_both_clocks(kind: int, whose: str) -> None:
    """And what to do; whose clock the other is depends on the topic."""
    found = doubted(LATE, (kind, int(NOW * 1000) + 60_000), NOW)

    assert found.source == "requests/0/7"
    assert found.message == (
        f"{LATE.message}; it was 2025-11-24 16:01:00 UTC by {whose} clock when this was answered, and is "
        "2025-11-24 16:00:00 UTC here: a clock that is 60.0 s behind takes as much of each timeout; "
        f"set this machine's, or {whose}"
    )


@pytest.mark.parametrize("ahead", [-1_764_000_000_001, -60_000, 0, 99, 2**62])
def test_an_answer_whose_time_can_be_names_no_clock(ahead: int) -> None:
    """Nor one without a time, or with one that no calendar has."""
    assert doubted(LATE, (1, int(NOW * 1000) + ahead), NOW) is LATE


@pytest.mark.parametrize(("code", "kind"), [(b"DEADLINE_EXCEEDED", DeadlineExceeded), (b"INTERNAL", Internal)])
def test_only_what_was_late_is_about_clocks(code: bytes, kind: type[Exception]) -> None:
    """An answer that says something else is told as it is."""
    stamp = (1, int(time.time() * 1000) + 3_600_000)
    found = Encoder(SIGNATURE).read(Record([("error-code", code)], b'{"error":"no"}', stamp=stamp))

    assert type(found) is kind
    assert ("clock" in str(found)) == (kind is DeadlineExceeded)
