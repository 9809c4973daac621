"""Reasons are grouped, however many letters there are."""

from __future__ import annotations

import time

import pytest

from tests.unit.tools.dead_letters.builders import dead_record, letter
from worker.codecs.dead_letters import Letter, read
from worker.core.failures import Code
from worker.terminal.terminal import console
from worker.tools.dead_letters import listing
from worker.tools.dead_letters.listing import MOST_REASONS, OTHERS, blurred, reasons, show
from worker.tools.dead_letters.showing import newest


def of(message: str, *, code: Code = Code.INTERNAL, topic: str = "requests", at: int = 0, ms: int = 0) -> Letter:
    return read(dead_record(at, code=code, message=message, request_topic=topic, time_ms=ms))


@pytest.mark.parametrize(
    ("message", "like"),
    [
        ("expected a shape of [rows, 64], got [1, 60]", "expected a shape of [rows, #], got [#, #]"),
        ("line 1 column 17 (char 16)", "line # column # (char #)"),
        ("expected FP32, got UINT8 in x2", "expected FP32, got UINT8 in x2"),
        ("-1.5e-7 is not 3.0", "# is not #"),
        ("order 3fa85f64-5717-4562-b3fc-2c963f66afa6 is bad", "order # is bad"),
        ("deadbeef is a word, 1.2.3 a version", "deadbeef is a word, 1.2.3 a version"),
    ],
)
def test_numbers_make_no_difference(message: str, like: str) -> None:
    """Names with digits in them do."""
    assert blurred(message) == like


@pytest.mark.parametrize("piece", ["a-", "1", "1.", "-", "abcdef0 "])
def test_a_message_without_end_is_read_in_a_moment(piece: str) -> None:
    """Its beginning tells as much. The pattern looks ahead from every word, for a digit that may not be there."""
    began = time.process_time()

    found = blurred(piece * 50_000)

    assert time.process_time() - began < 1
    assert len(found) <= 300


def test_what_is_remembered_of_a_message_is_its_beginning() -> None:
    """Another program's letter may say a megabyte, and 4,096 of those were kept."""
    listing._blurred.cache_clear()

    found = {blurred("b" * listing._MESSAGE_READ + rest) for rest in ("", "c", "d" * 1_000_000)}

    assert len(found) == listing._blurred.cache_info().currsize == 1


def test_letters_with_one_reason_are_one_entry() -> None:
    """How many, since when, until when, and where the first lies."""
    (reason,) = reasons([of("got 1", at=4, ms=20), of("got 22", at=5, ms=30), of("got 3", at=6, ms=10)])

    assert (reason.letters, reason.first_ms, reason.last_ms, reason.example) == (3, 10, 30, "dead/0/4")
    assert (reason.code, reason.message, reason.request_topic) == ("INTERNAL", "got #", "requests")


def test_a_letter_without_a_time_counts() -> None:
    """It has none to tell."""
    (reason,) = reasons([letter(time_ms=None)])

    assert (reason.letters, reason.first_ms, reason.last_ms) == (1, None, None)


def test_requests_that_were_sent_back_before_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """By the header that a replay gives them; where there are none, none are told of."""
    again = letter(headers=[("replay-of", b"requests/2/7")])

    for found, told in (
        ([letter(), again, again], "3 dead letters in dead, 2 of them of requests sent back before, 1970-"),
        ([again], "1 dead letter in dead, of a request sent back before, 1970-"),
        ([letter()], "1 dead letter in dead, 1970-"),
    ):
        show(console(), "dead", reasons(found))

        assert capsys.readouterr().out.startswith(told)


@pytest.mark.parametrize(("message", "told"), [("got 1", "# stands for a number; "), ("got none", "")])
def test_the_last_line_says_what_stands_for_numbers(
    message: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there are some, and the command that shows a letter with them."""
    show(console(), "dead", reasons([of(message, at=4)]))

    assert capsys.readouterr().out.splitlines()[-1] == f"{told}`dead-letters show dead/0/4` shows that letter whole"


def test_codes_and_topics_are_kept_apart_the_commonest_first() -> None:
    """All entries of one code stand together."""
    found = [of("x"), *[of("y", code=Code.NOT_FOUND)] * 2, of("y", code=Code.NOT_FOUND, topic="b"), *[of("z")] * 1]

    assert [(at.code, at.message, at.request_topic, at.letters) for at in reasons(found)] == [
        ("NOT_FOUND", "y", "requests", 2),
        ("NOT_FOUND", "y", "b", 1),
        ("INTERNAL", "x", "requests", 1),
        ("INTERNAL", "z", "requests", 1),
    ]


def test_memory_does_not_grow_with_the_messages() -> None:
    """Beyond a bound they share an entry, and are counted there."""
    words = ["".join(chr(97 + (n // 26**k) % 26) for k in range(3)) for n in range(MOST_REASONS + 50)]

    found = reasons(of(word) for word in words)

    assert len(found) == MOST_REASONS + 1
    assert sum(at.letters for at in found) == len(words)
    assert [at.letters for at in found if at.message == OTHERS] == [50]


def test_the_newest_come_last() -> None:
    """As in a log, whatever order their partitions were read in."""
    found = [letter(at, time_ms=ms) for at, ms in enumerate([30, 10, 40, 20])]

    assert [one.record.timestamp_ms for one in newest(iter(found), 2)] == [30, 40]


def test_reasons_as_common_are_told_from_the_oldest_on() -> None:
    """In whatever order the partitions of the topic were read."""
    older, newer = of("a", ms=1), of("b", ms=2)

    orders = [[reason.message for reason in reasons(found)] for found in ([older, newer], [newer, older])]

    assert orders == [["a", "b"]] * 2
