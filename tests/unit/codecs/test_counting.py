"""Answers of a chunk that leave together, and how many rejections in a row they are."""

from __future__ import annotations

import pytest

from tests.unit.codecs.builders import codecs, record
from worker.core.failures import Code, TooManyRejections
from worker.core.records import Answer, Fields, Rejection, ReplyForm
from worker.core.rejections import Rejections

RESULT: Fields = ("responses", b"k", b"a result", [], 0, None)
NO = Rejection(record(b"odd"), Code.INVALID_ARGUMENT, "no", ReplyForm("application/json"))
SILENT = NO._replace(is_silent=True)


@pytest.mark.parametrize(
    "stretches",
    [
        [[NO, NO, RESULT, NO, NO]],
        [[NO, NO], [RESULT, NO], [NO]],
        [[NO], [NO, RESULT, SILENT], [NO, NO]],
        [[NO, SILENT, NO], [RESULT, RESULT], [NO, SILENT, NO]],
    ],
)
def test_a_result_ends_a_row_wherever_it_stands(stretches: list[list[Answer]]) -> None:
    """Answers count in the order in which they leave, also those that leave together."""
    rejections = Rejections(3)
    codec = codecs(rejections=rejections)

    for answers in stretches:
        codec.messages(answers)

    assert rejections._in_a_row == 2
    codec.messages([NO])
    with pytest.raises(TooManyRejections, match="3 records in a row"):
        rejections.check()


def test_answers_leave_in_their_order() -> None:
    """A rejection becomes messages at its own place; a silent one becomes none."""
    codec = codecs()

    messages = codec.messages([RESULT, NO, SILENT, RESULT])

    assert (messages[0], messages[-1]) == (RESULT, RESULT)
    assert 3 <= len(messages) <= 4
