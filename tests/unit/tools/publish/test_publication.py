"""The match of answers and requests: places, repeats, strangers and latencies."""

from __future__ import annotations

import pytest

from worker.core.records import Partition, Record
from worker.tools.publish.publication import AwaitedAnswers


def answer(place: str, status: bytes = b"ok", code: bytes | None = None) -> Record:
    headers = [("status", status), ("source", place.encode()), ("error-code", code)]
    return Record(Partition("answers", 0), 0, None, b"", headers, None)


def published(*places: str) -> AwaitedAnswers:
    """Answers awaited for these places, published one a second."""
    awaited = AwaitedAnswers()
    for now, place in enumerate(places):
        awaited.placed(float(now), place)
    return awaited


def test_each_request_is_matched_with_its_own_answer() -> None:
    """The place matches them, and the publishing time starts the latency. A refused request awaits no answer."""
    awaited = published("t/0/0", "t/0/1")
    awaited.placed(5.0, None)

    assert awaited.hear(answer("t/0/1"), 1.002)
    assert awaited.hear(answer("t/0/0"), 1.010)

    found = awaited.summary()
    assert found["answers"] == {"ok": 2, "errors": {}, "missing": 0, "repeated": 0, "passed_over": 0}
    assert found["latency_ms"] == pytest.approx({"p50": 506.0, "p95": 959.6, "p99": 999.92, "max": 1010.0})


def test_errors_are_answers_counted_by_code() -> None:
    """The commonest code comes first; an error without a code is counted, too."""
    awaited = published("t/0/0", "t/0/1", "t/0/2", "t/0/3")
    for number, code in enumerate([b"INTERNAL", b"NOT_FOUND", b"NOT_FOUND", None]):
        awaited.hear(answer(f"t/0/{number}", b"error", code), 5.0)

    assert list(awaited.summary()["answers"]["errors"].items()) == [("NOT_FOUND", 2), ("INTERNAL", 1), ("unknown", 1)]


def test_what_did_not_come_is_missing_and_what_came_twice_repeated() -> None:
    """A repeat is no second answer, and its time does not count."""
    awaited = published("t/0/0", "t/0/1")

    assert awaited.hear(answer("t/0/0"), 1.0)
    assert not awaited.hear(answer("t/0/0"), 9.0)

    found = awaited.summary()
    assert found["answers"] == {"ok": 1, "errors": {}, "missing": 1, "repeated": 1, "passed_over": 0}
    assert found["latency_ms"]["max"] == 1000.0


@pytest.mark.parametrize("place", ["t/0/9", "other/0/0", "", "\udcff"])
def test_answers_to_others_are_passed_over(place: str) -> None:
    """They may name any place."""
    awaited = published("t/0/0")
    stranger = Record(Partition("a", 0), 0, None, b"", [("source", place.encode(errors="surrogateescape"))], None)

    assert not awaited.hear(stranger, 1.0)
    nothing = {"ok": 0, "errors": {}, "missing": 1, "repeated": 0, "passed_over": 0}
    assert awaited.summary() == {"answers": nothing, "latency_ms": {}}


def test_an_answer_may_come_before_the_place_is_known() -> None:
    """Its arrival ends its latency; another answer with that place is a repeat."""
    awaited = AwaitedAnswers()
    for now in (1.0, 2.0):
        assert not awaited.hear(answer("t/0/1"), now)

    awaited.placed(0.0, "t/0/1")

    found = awaited.summary()
    assert found["answers"] == {"ok": 1, "errors": {}, "missing": 0, "repeated": 1, "passed_over": 0}
    assert found["latency_ms"]["max"] == 1000.0


def test_a_request_that_gets_no_answer_is_not_waited_for() -> None:
    """It is counted apart, unless the topic refused it."""
    awaited = published("t/0/0")
    awaited.placed(None, "t/0/1")
    awaited.placed(None, None)

    awaited.hear(answer("t/0/0"), 1.0)

    assert awaited.missing == 0
    assert awaited.summary()["answers"] == {"ok": 1, "errors": {}, "missing": 0, "repeated": 0, "passed_over": 1}
