"""A run of messages is a sequence of messages in every respect."""

from __future__ import annotations

import pytest

from worker.core.records import Message
from worker.core.runs import MessageRun, MessageRuns, fields_of, value_bytes

MESSAGES = [
    Message("answers", b"a", b"one", [("source", b"requests/3/7")], 3),
    Message("answers", None, b"three", [("source", b"requests/3/8")], 3),
    Message("answers", b"c", b"", [], 3),
]
RUN = MessageRun(
    "answers",
    [message.key for message in MESSAGES],
    [message.value or b"" for message in MESSAGES],
    [message.headers for message in MESSAGES],
    3,
)


def test_it_holds_these_messages() -> None:
    """It gives single messages by index, all of them in order, and slices."""
    assert list(RUN) == MESSAGES
    assert [RUN[at] for at in range(-3, 3)] == [*MESSAGES, *MESSAGES]
    assert [list(RUN[1:]), list(RUN[:0])] == [MESSAGES[1:], []]
    assert len(RUN) == 3
    with pytest.raises(IndexError):
        RUN[3]


def test_its_columns_say_the_same_as_its_messages() -> None:
    """A plain list of messages can be read by column, too."""
    assert list(fields_of(RUN)) == list(fields_of(MESSAGES)) == MESSAGES
    assert value_bytes(RUN) == value_bytes(MESSAGES) == 8
    assert value_bytes([Message("dead-letters", None, None, [], 3)]) == 0


def test_several_are_read_one_behind_the_other() -> None:
    """A plain list of messages may be one of them."""
    both = MessageRuns((RUN, MESSAGES[:1]))

    assert list(fields_of(both)) == list(both) == [*MESSAGES, MESSAGES[0]]
    assert (len(both), both[3], both[2:], value_bytes(both)) == (4, MESSAGES[0], [MESSAGES[2], MESSAGES[0]], 11)
