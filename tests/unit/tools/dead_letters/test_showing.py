"""Any number of letters is grouped by reason, and a letter is shown whole and never raw."""

from __future__ import annotations

import base64
import time

import pytest

from tests.unit.tools.dead_letters.builders import dead_record, letter
from worker.codecs.dead_letters import Letter, read
from worker.core.failures import Code
from worker.terminal.terminal import console
from worker.tools.dead_letters import showing
from worker.tools.dead_letters.letters import time_of
from worker.tools.dead_letters.showing import MOST_REASONS, OTHERS, as_document, blurred, reasons


def of(message: str, *, code: Code = Code.INTERNAL, topic: str = "requests", at: int = 0, ms: int = 0) -> Letter:
    return letter(at, code=code, message=message, request_topic=topic, time_ms=ms)


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
    """Digits within names do make a difference."""
    assert blurred(message) == like


@pytest.mark.parametrize("piece", ["a-", "1", "1.", "-", "abcdef0 "])
def test_a_message_without_end_is_read_in_a_moment(piece: str) -> None:
    """Only its beginning is read. The pattern looks ahead from every word for a digit that may not be there."""
    began = time.process_time()

    found = blurred(piece * 50_000)

    assert time.process_time() - began < 1
    assert len(found) <= 300


def test_letters_with_one_reason_are_one_entry() -> None:
    """It has the number, first and last time, and the first letter's place. A letter without a time counts, too."""
    letters = [of("got 1", at=4, ms=20), of("got 22", at=5, ms=30), of("got 3", at=6, ms=10)]
    letters.append(letter(7, code=Code.INTERNAL, message="got 4", time_ms=None))

    (reason,) = reasons(letters)

    assert (reason.count, reason.first_ms, reason.last_ms, reason.example) == (4, 10, 30, "dead/0/4")
    assert (reason.code, reason.message, reason.request_topic) == ("INTERNAL", "got #", "requests")


def test_memory_does_not_grow_with_the_messages() -> None:
    """Beyond a bound, reasons share an entry that counts them."""
    words = ["".join(chr(97 + (n // 26**k) % 26) for k in range(3)) for n in range(MOST_REASONS + 50)]

    found = reasons(of(word) for word in words)

    assert len(found) == MOST_REASONS + 1
    assert [at.count for at in found if at.message == OTHERS] == [50]


def test_a_letter_is_shown_whole_and_nothing_of_it_raw(capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences, marks that change the writing direction, and markup are shown, not obeyed."""
    evil = b"[bold]\x1b[31m"
    given = letter(7, message="\x1b[2J", key=evil, value=evil + "\nnext\u202e".encode(), headers=[("h", evil)])

    showing._print(console(), given)

    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "time 1970-01-01 00:00:01 UTC",
        "place dead/0/7",
        "request requests/2/107",
        "group group",
        "code INVALID_ARGUMENT",
        "message \\x1b[2J",
        "key [bold]\\x1b[31m",
        'headers {"h": "[bold]\\u001b[31m"}',
        "[bold]\\x1b[31m",
        "next\\u202e",
    ]


def test_what_a_letter_has_not_got_is_told_and_bytes_are_base64(capsys: pytest.CaptureFixture[str]) -> None:
    """The size of the missing part is shown. The request has the members that `publish` takes."""
    showing._print(console(), read(dead_record(value=b"x" * 5000, limit=2000)))

    assert '{"value": "5000 bytes"}' in capsys.readouterr().out
    raw = as_document(letter(value=b"\xff" * 500, headers=[("h", b"x")]))
    assert (raw["value_base64"], raw["headers"]) == (base64.b64encode(b"\xff" * 500).decode(), {"h": "x"})


@pytest.mark.parametrize(
    ("text", "found"),
    [("90s", 910_000), ("15m", 100_000), ("1d", 0), ("1970-01-01T00:00:05", 5000), ("1970-01-01T01:00+01:00", 0)],
)
def test_a_time_is_an_age_or_a_moment(text: str, found: int) -> None:
    """It is never before the epoch: Kafka takes -1 for the end."""
    assert time_of(text, 1000.0) == found
