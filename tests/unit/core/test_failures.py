"""Failures of a run because of single rows."""

from __future__ import annotations

from worker.core.failures import MOST_FAULTS, Code, RowFault, RunFailure, failure_of_rows

NO = RowFault(Code.RESOURCE_EXHAUSTED, "'9' is no number", "ValueError at functions.py:3")


def test_a_failure_because_of_rows_tells_the_first_one() -> None:
    """The log hears it without the publisher's value. The code is that of a run, and says nothing of memory."""
    assert failure_of_rows({3: NO._replace(message="another"), 1: NO}) == RunFailure(
        "2 rows can have no result: '9' is no number",
        logged="2 rows can have no result: ValueError at functions.py:3",
        faults={1: NO, 3: NO._replace(message="another")},
    )


def test_a_fault_of_the_operator_is_told_before_those_of_publishers() -> None:
    """The operator can mend it. Where all are of publishers, no model failed."""
    ours = RowFault(Code.INTERNAL, "no")

    assert failure_of_rows({1: NO, 3: ours}).for_log == "2 rows can have no result: no"
    assert not failure_of_rows({1: NO, 3: ours}).is_of_data
    assert failure_of_rows({1: NO}).is_of_data
    assert not RunFailure("no").is_of_data


def test_very_many_faults_are_told_a_part_at_a_time() -> None:
    """The message that carries them has a limit. The rows behind them fail when they run again."""
    failure = failure_of_rows(dict.fromkeys(range(2 * MOST_FAULTS), NO))

    assert list(failure.faults) == [*range(MOST_FAULTS)]
    assert failure.message.startswith(f"{2 * MOST_FAULTS} rows ")
