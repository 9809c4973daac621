"""How what stands in a record is shown to people: times, bytes, JSON. Nothing in a record reaches the terminal as
anything but visible characters: escape sequences in a request are told, never obeyed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC
from typing import NamedTuple

from worker.terminal.terminal import printable
from worker.tools.consume.shown import decoded, instant

_DUMP_WIDTH = 16
# Of a text that is known to be JSON: strings, arrays of nothing but words, objects with nothing in them, single marks
# and words. The lines that a string may not hold are between words.
_STRING = r'"(?:[^"\\]|\\.)*+"'
_PIECES = re.compile(rf'{_STRING}|\[(?:[^][{{}}"]++|{_STRING})*+\]|{{\s*}}|[][{{}},:]|[^][{{}},:"\s]+')


class Shown(NamedTuple):
    """A value made visible: what it was taken for, its lines, and whether they are all of it."""

    kind: str
    lines: list[str]
    is_whole: bool


def brief(value: bytes | None, most: int = 200) -> str:
    """A key, or a header's value, on one line."""
    if value is None:
        return "null"
    text = decoded(value)
    said = f"0x{value[:most].hex()}" if text is None else printable(text[:most])
    return f"{said}… ({len(value):,} bytes)" if len(value if text is None else text) > most else said or "(empty)"


def moment(time_ms: int | None) -> str:
    """A time, UTC; the number where it is none."""
    if time_ms is None:
        return "no time"
    at = instant(time_ms, UTC)
    return f"{time_ms} ms" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def period(first_ms: int | None, last_ms: int | None) -> str:
    """From the one time to the other; the day is said once where it is the same."""
    first, last = moment(first_ms), moment(last_ms)
    if first == last:
        return first
    day, _, _ = first.partition(" ")
    return f"{first} to {last.removeprefix(f'{day} ')}"


def shown(value: bytes, most_lines: int, most_characters: int) -> Shown:
    """The value as JSON, as text, or as a dump of its bytes: what it is."""
    text = decoded(value)
    if text is None or "\0" in text:
        dump = list(_dump(value[: most_lines * _DUMP_WIDTH]))
        return Shown("binary", dump, len(value) <= most_lines * _DUMP_WIDTH)
    lines = _json(text)
    kind, lines = ("text", text.splitlines()) if lines is None else ("JSON", lines)
    return _cut(kind, [printable(line) for line in lines], most_lines, most_characters)


def _cut(kind: str, lines: list[str], most_lines: int, most_characters: int) -> Shown:
    kept: list[str] = []
    left = most_characters
    for line in lines[:most_lines]:
        kept.append(line if len(line) <= left else f"{line[:left]}…")
        left -= len(line)
        if left < 0:
            break
    return Shown(kind, kept, len(kept) == len(lines) and left >= 0)


def _dump(value: bytes) -> Iterator[str]:
    for at in range(0, len(value), _DUMP_WIDTH):
        row = value[at : at + _DUMP_WIDTH]
        figures = f"{row[:8].hex(' '):23}  {row[8:].hex(' '):23}"
        characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{at:08x}  {figures}  |{characters}|"


def _json(text: str) -> list[str] | None:
    """A line for each member, all of it as it was written; None for what is no JSON object or array."""
    try:
        is_json = isinstance(json.loads(text, parse_int=str), dict | list)
    except (ValueError, RecursionError):
        return None
    return _indented(text) if is_json else None


def _indented(text: str) -> list[str]:
    lines, depth = [""], 0
    for piece in _PIECES.findall(text):
        if piece in "}]":
            depth -= 1
            lines.append("  " * depth)
        lines[-1] += ": " if piece == ":" else _on_one_line(piece)
        if piece in "{[,":
            depth += piece != ","
            lines.append("  " * depth)
    return lines


def _on_one_line(piece: str) -> str:
    return " ".join(line for part in piece.split("\n") if (line := part.strip()))
