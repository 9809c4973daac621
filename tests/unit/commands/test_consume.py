"""When `consume` has waited long enough, and what it says of a key that did not come."""

from __future__ import annotations

import pytest

from worker.commands.consume import Patience, Wish, _Search
from worker.core.failures import Incomplete
from worker.kafka.client import ANSWER_TIMEOUT


def test_silence_counts_once_the_backlog_has_been_read() -> None:
    """Connecting and reading what was there take as long as they take."""
    patience = Patience(0.5, 100.0)

    assert not patience.is_over(102.0, is_backlog=True)
    patience.heard(102.0)
    assert not patience.is_over(104.0, is_backlog=True)
    patience.heard(104.0)
    assert not patience.is_over(104.5, is_backlog=False)
    assert patience.is_over(104.6, is_backlog=False)


def test_a_broker_that_sends_nothing_of_the_backlog_is_not_waited_for_without_end() -> None:
    """As long as any answer of a broker may take, or as long as was asked for."""
    assert not Patience(0.5, 0.0).is_over(ANSWER_TIMEOUT, is_backlog=True)
    assert Patience(0.5, 0.0).is_over(ANSWER_TIMEOUT + 0.1, is_backlog=True)
    assert not Patience(60.0, 0.0).is_over(59.0, is_backlog=True)
    assert Patience(60.0, 0.0).is_over(61.0, is_backlog=True)


def test_without_a_timeout_patience_has_no_end() -> None:
    """Whatever comes, or does not."""
    assert not Patience(None, 0.0).is_over(1e9, is_backlog=True)
    assert not Patience(None, 0.0).is_over(1e9, is_backlog=False)


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        (Wish(key="k"), "no record with the key k was found$"),
        (Wish(key="k", last=2, errors_only=True), "no error with the key k was found among the newest 2$"),
    ],
)
def test_a_key_that_did_not_come_is_missing_only_where_it_was_looked_for(wish: Wish, told: str) -> None:
    """The other options choose from the newest so many: before them there may be others."""
    with pytest.raises(Incomplete, match=told):
        _Search(wish).check()
