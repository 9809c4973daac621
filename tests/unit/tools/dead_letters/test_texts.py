"""What dead letters look like: JSON, text and bytes, and nothing that a terminal would obey."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from worker.core.failures import BadConfiguration
from worker.terminal.terminal import hang, printable, say
from worker.tools.dead_letters.texts import brief, moment, period, shown
from worker.tools.dead_letters.wanted_letters import time_of


def lines(value: bytes) -> list[str]:
    return shown(value, 100, 10_000).lines


def test_nothing_in_a_record_moves_the_cursor() -> None:
    """Escape sequences, line ends and marks that turn the writing round are told, not obeyed."""
    assert printable("a\x1b[31mb\r\n\u202ec\x9b") == r"a\x1b[31mb\r\n\u202ec\x9b"
    assert lines("one\x1b[2J\ntwo\u202e".encode()) == [r"one\x1b[2J", r"two\u202e"]


def test_markup_in_a_record_is_text() -> None:
    """Brackets mean nothing but themselves."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)

    say(screen, "[bold]x[/bold] [/nothing]")
    hang(screen, "1", "[red]y[/red] :smile:")

    assert screen.file.getvalue().split("\n")[:2] == [  # type: ignore[attr-defined]  # it is a StringIO
        "[bold]x[/bold] [/nothing]",
        "1  [red]y[/red] :smile:",
    ]


def test_json_gets_a_line_for_each_member() -> None:
    """And for each array of words."""
    assert lines(b'{"inputs":[{"name":"x]","shape":[1,2],"data":[[1,\n 2],["]"]]}],"none":{ },"ok" :true}') == [
        "{",
        '  "inputs": [',
        "    {",
        '      "name": "x]",',
        '      "shape": [1,2],',
        '      "data": [',
        "        [1, 2],",
        '        ["]"]',
        "      ]",
        "    }",
        "  ],",
        '  "none": { },',
        '  "ok": true',
        "}",
    ]


def test_blanks_take_no_more_than_their_length() -> None:
    """A megabyte of them in one request held the command up for three quarters of an hour."""
    began = time.process_time()

    assert lines(b"[1," + b" " * 200_000 + b"\n" + b" " * 200_000 + b"2]") == ["[1, 2]"]
    shown(b"[1," + b" " * 1_000_000 + b"2]", 100, 10_000)

    assert time.process_time() - began < 5.0


def test_json_is_shown_as_it_was_written() -> None:
    """A number that no computer holds, a member that comes twice: just what one looks for."""
    assert lines(b'{"a": 1e400, "a": 0.10, "b": 12345678901234567890123, "c": [NaN, "\xc3\xa9\\u001b"]}') == [
        "{",
        '  "a": 1e400,',
        '  "a": 0.10,',
        '  "b": 12345678901234567890123,',
        '  "c": [NaN, "é\\u001b"]',
        "}",
    ]


@pytest.mark.parametrize("value", [b'{"a": 1', b"[" * 100_000, b"7", b'"x"'])
def test_what_is_not_quite_json_is_text(value: bytes) -> None:
    """Cut off, nested too deep, or no request at all: shown as it is."""
    seen = shown(value, 100, 200_000)

    assert seen.lines == [value.decode()]


def test_bytes_are_dumped() -> None:
    """Sixteen a line, with what they would be as text."""
    seen = shown(bytes(range(60, 78)) + b"\xff", 100, 1000)

    assert seen.kind == "binary"
    assert seen.lines == [
        "00000000  3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b  |<=>?@ABCDEFGHIJK|",
        "00000010  4c 4d ff                                          |LM.|",
    ]


def test_a_long_value_is_cut_and_says_so() -> None:
    """By lines and by characters."""
    assert shown(b"a\nb\nc", 3, 100).is_whole
    assert shown(b"a\nb\nc", 2, 100) == ("text", ["a", "b"], False)
    assert shown(b"abcdef\nb", 9, 4) == ("text", ["abcd…"], False)
    assert shown(bytes(33), 2, 100).is_whole is False


def test_keys_and_headers_stand_on_one_line() -> None:
    """As text where they are text, in hexadecimal else."""
    assert brief(b"customer-7") == "customer-7"
    assert brief(b"\xff\0") == "0xff00"
    assert brief(None) == "null"
    assert brief(b"") == "(empty)"
    assert brief(b"a" * 300, most=3) == "aaa… (300 bytes)"


def test_a_period_says_the_day_once() -> None:
    """Unless it is more than one."""
    assert period(0, 0) == "1970-01-01 00:00:00"
    assert period(0, 61_000) == "1970-01-01 00:00:00 to 00:01:01"
    assert period(0, 86_400_000) == "1970-01-01 00:00:00 to 1970-01-02 00:00:00"
    assert period(None, None) == "no time"


def test_a_time_that_is_none_is_its_number() -> None:
    """A producer that stamps microseconds, for one."""
    assert moment(1_700_000_000_000_000) == "1700000000000000 ms"
    assert period(0, 2**62) == f"1970-01-01 00:00:00 to {2**62} ms"
    assert period(2**61, 2**61 + 512) == f"{2**61} ms to {2**61 + 512} ms"


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("90s", 910_000),
        ("15m", 100_000),
        ("0d", 1_000_000),
        ("1970-01-01T00:01", 60_000),
        ("1970-01-01T01:01+01:00", 60_000),
        ("1970-01-02", 86_400_000),
        ("1969-12-31", 0),
        ("9999d", 0),
        ("0001-01-01T00:00+14:00", 0),
    ],
)
def test_since_is_so_long_ago_or_a_time(text: str, time_ms: int) -> None:
    """UTC unless it says otherwise; all letters, where it is before any: a broker knows no times below 0."""
    assert time_of(text, now=1000.0) == time_ms


@pytest.mark.parametrize("text", ["", "yesterday", "5", "-5m", "5w", "2026-13-01"])
def test_since_is_nothing_else(text: str) -> None:
    """And says what it may be."""
    with pytest.raises(BadConfiguration, match="90s, 15m"):
        time_of(text, now=1000.0)
