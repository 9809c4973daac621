"""The oracle itself sees each broken promise, and finds nothing where all were kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.kafka.checker import RAW, Answer, Reference, answer, judge
from tests.kafka.cluster import Read, Sent
from tests.kafka.publisher import Position
from tests.kafka.scene import MODEL, raw, row

OWED = {Position("t", partition, offset): raw(offset, key=b"k") for partition in (0, 1) for offset in range(3)}


def answered(
    partition: int, offset: int, *, at: int = 0, key: bytes | None = b"k", headers: Mapping[str, str] | None = None
) -> Answer:
    """The answer to `t/partition/offset`, in response partition `at`."""
    position = Position("t", partition, offset)
    said = {"source": str(position), "status": "ok", "content-type": RAW, **(headers or {})}
    return Answer(at, 0, key, b"", said, position)


def test_a_kept_promise_is_found_clean() -> None:
    """All answered once and in order, partitions interleaved: nothing is found."""
    judge([answered(p, n) for n in range(3) for p in (0, 1)], OWED).expect_clean()


def test_a_missing_answer_is_lost() -> None:
    """A request without an answer is named."""
    verdict = judge([answered(p, n) for n in range(3) for p in (0, 1)][1:], OWED)

    assert verdict.lost == ["t/0/0"]


def test_a_repeat_in_order_is_counted_and_no_disorder() -> None:
    """An answer repeated after a take-over is a repeat, which a consumer drops."""
    verdict = judge([answered(p, n) for p in (0, 1) for n in (0, 1, 0, 1, 2)], OWED)

    verdict.expect_clean(repeats=4)
    with pytest.raises(AssertionError, match="4 answers repeated"):
        verdict.expect_clean(repeats=3)


def test_an_answer_that_comes_first_after_a_later_one_is_disorder() -> None:
    """A consumer that keeps the highest offset would drop it, even if it comes again."""
    verdict = judge([answered(0, 0), answered(0, 2), answered(0, 1)] + [answered(1, n) for n in range(3)], OWED)

    assert verdict.disordered == ["t/0/1"]


def test_less_order_is_held_to_what_it_promises() -> None:
    """Where only requests of one key keep their order, others may pass; without any order all may."""
    of_one_key = [answered(0, n) for n in (0, 2, 1)]
    without = [answered(0, n, key=None) for n in (0, 2, 1)]
    owed = {position: raw(position.offset, key=b"k") for position in OWED if position.partition == 0}

    by_key = [judge(answers, owed, order="key").disordered for answers in (of_one_key, without)]

    assert by_key == [["t/0/1"], []]
    assert judge(of_one_key, owed, order="none").disordered == []


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (answered(0, 0, headers={"status": "fine"}), "status is 'fine'"),
        (answered(0, 0, headers={"status": "error"}), "with error-code None"),
        (answered(0, 0, headers={"error-code": "INTERNAL"}), "with error-code 'INTERNAL'"),
        (answered(0, 0, headers={"request-id": "t/0/0"}), "request-id repeats source"),
        (answered(0, 0, key=b"other"), "key b'other', not b'k'"),
    ],
)
def test_a_wrong_header_is_a_fault(wrong: Answer, fault: str) -> None:
    """Each header that breaks the contract is named."""
    verdict = judge([wrong], {Position("t", 0, 0): OWED[Position("t", 0, 0)]})

    assert [fault in found for found in verdict.faults] == [True]


def test_an_answer_to_nothing_is_unasked() -> None:
    """An answer is named if its source was never sent, or it has none."""
    without = answer(Read(0, 0, None, b"", [("status", b"ok")]))

    assert len(judge([answered(0, 7), without], {}).unasked) == 2


def test_swapped_answers_are_wrong_values() -> None:
    """Two requests that got each other's answer are both named; the right answer is not."""
    reference = Reference(MODEL)
    owed = {Position("t", 0, n): Sent(b"k", row(n)) for n in range(3)}
    rows = reference.run(np.frombuffer(b"".join(row(n) for n in (1, 0, 2)), "<f4").reshape(3, -1))
    answers = [answered(0, n)._replace(value=rows[n].tobytes()) for n in range(3)]

    wrong = reference.wrong_values(answers, owed)

    assert [text.split(":")[0] for text in wrong] == ["t/0/0", "t/0/1"]
