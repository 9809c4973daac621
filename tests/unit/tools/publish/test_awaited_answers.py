"""Whose answer is whose: names, repeats, strangers and latencies."""

from __future__ import annotations

import pytest

from worker.core.records import Partition, Record
from worker.tools.publish.awaited_answers import Answered, AwaitedAnswers


def answer(name: bytes | None, source: str = "t/0/0", status: bytes = b"ok", code: bytes | None = None) -> Record:
    headers = [("status", status), ("source", source.encode()), ("request-id", name), ("error-code", code)]
    return Record(Partition("answers", 0), 0, None, b"", headers, None)


def test_each_request_is_matched_with_its_own_answer() -> None:
    """And waited for from the instant it was called."""
    awaited = AwaitedAnswers("run")
    names = [awaited.expect(None, now) for now in (0.0, 1.0)]

    assert awaited.hear(answer(names[1]), 1.002)
    assert awaited.hear(answer(names[0]), 1.010)

    assert names == [b"run-0", b"run-1"]
    found = awaited.answered(2)
    assert found[:-1] == (2, {}, 0, 0)
    assert found.latency_ms == pytest.approx({"p50": 506.0, "p95": 959.6, "p99": 999.92, "max": 1010.0})


def test_errors_are_answers_counted_by_code() -> None:
    """The commonest first."""
    awaited = AwaitedAnswers("run")
    names = [awaited.expect(None, 0.0) for _ in range(3)]
    awaited.hear(answer(names[0], status=b"error", code=b"INTERNAL"), 1.0)
    for name in names[1:]:
        awaited.hear(answer(name, status=b"error", code=b"NOT_FOUND"), 1.0)

    found = awaited.answered(3)

    assert (found.ok, list(found.errors.items()), found.missing) == (0, [("NOT_FOUND", 2), ("INTERNAL", 1)], 0)
    assert found.failed == 3


def test_an_error_without_a_code_is_counted_too() -> None:
    """Whoever wrote it."""
    awaited = AwaitedAnswers("run")
    awaited.hear(answer(awaited.expect(None, 0.0), status=b"odd"), 1.0)

    assert awaited.answered(1).errors == {"unknown": 1}


@pytest.mark.parametrize("name", [b"run-", b"run-1", b"run-x", b"run-" + b"9" * 5000, b"run--0"])
def test_an_answer_that_others_wrote_counts_for_no_request(name: bytes) -> None:
    """Whatever number it says; one of 5,000 digits ended the command."""
    awaited = AwaitedAnswers("run")
    awaited.expect(None, 0.0)

    assert not awaited.hear(answer(name), 1.0)


def test_what_did_not_come_is_missing_and_what_came_twice_repeated() -> None:
    """A repeat is no second answer, and none of its time counts."""
    awaited = AwaitedAnswers("run")
    name = awaited.expect(None, 0.0)
    awaited.expect(None, 0.0)

    assert awaited.hear(answer(name), 1.0)
    assert not awaited.hear(answer(name), 9.0)

    found = awaited.answered(2)
    assert (found.ok, found.missing, found.repeated, found.latency_ms["max"]) == (1, 1, 1, 1000.0)


def test_answers_to_others_are_passed_over() -> None:
    """Another run's, a number that was never called, one without a name."""
    awaited = AwaitedAnswers("run")
    awaited.expect(None, 0.0)

    for name in (b"other-0", b"run-1", b"run-x", b"run-", b"run--1", b"run-\xc2\xb2", b"", None):
        assert not awaited.hear(answer(name), 1.0)

    assert awaited.answered(1) == Answered(0, {}, 1, 0, {})


def test_requests_may_have_names_of_their_own() -> None:
    """And be counted among the others."""
    awaited = AwaitedAnswers("run")

    assert awaited.expect(b"order-17", 0.0) == b"order-17"
    assert awaited.expect(None, 0.0) == b"run-1"
    awaited.placed(0, "t/0/0")
    assert awaited.hear(answer(b"order-17", "t/0/0"), 1.0)


def test_requests_of_one_name_have_an_answer_each() -> None:
    """By their places, whichever comes first; one for a place that has its answer is a repeat."""
    awaited = AwaitedAnswers("run")
    for number, now in enumerate((0.0, 1.0)):
        awaited.expect(b"same", now)
        awaited.placed(number, f"t/0/{number}")

    assert awaited.hear(answer(b"same", "t/0/1"), 3.0)
    assert not awaited.hear(answer(b"same", "t/0/1"), 4.0)
    assert awaited.hear(answer(b"same", "t/0/0"), 5.0)

    found = awaited.answered(2)
    assert (found.ok, found.missing, found.repeated, found.latency_ms["max"]) == (2, 0, 1, 5000.0)


def test_answers_to_another_run_of_the_same_names_are_passed_over() -> None:
    """A file that is published twice: what comes late for the first time is no answer to the second."""
    awaited = AwaitedAnswers("run")
    awaited.expect(b"same", 0.0)

    assert not awaited.hear(answer(b"same", "t/0/6", b"error"), 1.0)
    awaited.placed(0, "t/0/7")
    assert not awaited.hear(answer(b"same", "t/0/6", b"error"), 1.0)
    assert awaited.hear(answer(b"same", "t/0/7"), 2.0)

    assert awaited.answered(1)[:-1] == (1, {}, 0, 0)


def test_an_answer_may_come_before_the_place_is_known() -> None:
    """It is timed by when it came; another one of its place is a repeat."""
    awaited = AwaitedAnswers("run")
    for name in (b"a", b"b", b"c"):
        awaited.expect(name, 0.0)
    for now in (1.0, 2.0):
        awaited.hear(answer(b"b", "t/0/1"), now)

    for number, place in enumerate(["t/0/0", "t/0/1", None]):
        awaited.placed(number, place)

    found = awaited.answered(2)
    assert (found.ok, found.missing, found.repeated, found.latency_ms["max"]) == (1, 1, 1, 1000.0)
