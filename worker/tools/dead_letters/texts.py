"""How what stands in a record is shown to people: times, bytes, JSON. Nothing in a record reaches the terminal as
anything but visible characters: escape sequences in a request are told, never obeyed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.terminal.terminal import printable
from worker.tools.consume.shown import decoded, instant

_DUMP_WIDTH = 16


def say(screen: Console, text: str, style: str = "") -> None:
    """One line, as it is: a terminal breaks it where it ends, a file keeps it whole."""
    screen.print(Text(text, style=style), soft_wrap=True)


def hang(screen: Console, left: str, right: str, style: str = "") -> None:
    """Two columns; what the right one has no room for goes on beneath itself. In a file: one line."""
    if not screen.is_terminal:
        say(screen, f"{left}  {right}")
        return
    columns = Table.grid(padding=(0, 2, 0, 0))
    columns.add_column(no_wrap=True)
    columns.add_column(overflow="fold")
    columns.add_row(Text(left, style=style), Text(right, style=style))
    screen.print(columns)


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


class _Number(str):
    """A number as it was written: 1e400, 0.10 and 12345678901234567890 stay what they are."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """An object's members as they were written, a name that comes twice twice."""

    __slots__ = ()


def _json(text: str) -> list[str] | None:
    """None for what is no JSON object or array, or is nested deeper than Python goes."""
    try:
        document = json.loads(
            text, object_pairs_hook=_Members, parse_int=_Number, parse_float=_Number, parse_constant=_Number
        )
        return list(_pretty(document, "")) if isinstance(document, list) else None
    except (ValueError, RecursionError):
        return None


def _pretty(value: Any, indent: str, name: str = "", end: str = "") -> Iterator[str]:
    """One line for each member, and for each array that holds no objects."""
    if not _has_members(value):
        yield f"{indent}{name}{_line(value)}{end}"
        return
    opening, closing = "{}" if isinstance(value, _Members) else "[]"
    entries = value if isinstance(value, _Members) else [(None, entry) for entry in value]
    yield f"{indent}{name}{opening}"
    for number, (key, entry) in enumerate(entries, 1):
        said = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
        yield from _pretty(entry, f"{indent}  ", said, "," if number < len(entries) else "")
    yield f"{indent}{closing}{end}"


def _has_members(value: Any) -> bool:
    if isinstance(value, _Members):
        return bool(value)
    return isinstance(value, list) and any(_has_members(entry) for entry in value)


def _line(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, _Members):
        return "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_line, value))}]"
    return json.dumps(value, ensure_ascii=False)
