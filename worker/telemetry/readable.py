"""Log lines for people: the time, what happened, and its short fields on one line.

In a terminal a field that is a sentence, such as `why`, has a line of its own beneath, so that 80 columns do, and no
line is broken but by the terminal, so that a command can be copied whole. Elsewhere a fact keeps to one line, with its
date and zone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from structlog.typing import EventDict, WrappedLogger

_PLACED = ("at", "level", "event", "exception")  # fields that have a place of their own
_MOST = 4  # of a list, in a terminal: of more, the first two and the last
_INDENT = " " * len("12:34:56  ")
_YELLOW, _RED, _DIM, _RESET = "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
_COLOURS = {"warning": _YELLOW, "error": _RED, "critical": _RED}


class ReadableLines:
    """A structlog renderer. `in_terminal`: by local time, in colour, over several lines."""

    def __init__(self, *, in_terminal: bool) -> None:
        self._in_terminal = in_terminal

    def __call__(self, _: WrappedLogger, __: str, event: EventDict) -> str:
        most = _MOST if self._in_terminal else None
        fields = {
            name: _told(value, most) for name, value in event.items() if name not in _PLACED and value is not None
        }
        sentences = {name: text for name, text in fields.items() if self._in_terminal and " " in text}
        short = " ".join(f"{name}={text}" for name, text in fields.items() if name not in sentences)
        head = [self._at(event["at"]), self._fact(event["level"], escaped(str(event["event"])))]
        beneath = (f"{_INDENT}{name}: {text}" for name, text in sentences.items())
        return "\n".join(["  ".join(head + ([self._coloured(short, _DIM)] if short else [])), *beneath, *_trace(event)])

    def _at(self, at: str) -> str:
        return f"{datetime.fromisoformat(at).astimezone():%H:%M:%S}" if self._in_terminal else at

    def _fact(self, level: str, text: str) -> str:
        """Its level is told where it is more than information."""
        return text if level == "info" else self._coloured(f"{level}: {text}", _COLOURS.get(level, _DIM))

    def _coloured(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._in_terminal else text


def escaped(text: str) -> str:
    """With everything escaped that could move a cursor, change a colour or begin a line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _told(value: Any, most: int | None) -> str:
    """`most`: how many elements of a list are written; None: all."""
    if isinstance(value, dict):
        return ",".join(f"{escaped(str(name))}:{_told(held, most)}" for name, held in value.items())
    if isinstance(value, list | tuple | set):
        told = [_told(held, most) for held in value]
        return ",".join(told if most is None or len(told) <= most else [*told[:2], "…", told[-1]])
    return escaped(str(value))


def _trace(event: EventDict) -> Iterator[str]:
    """A defect's, line by line."""
    return (escaped(line) for line in str(event.get("exception", "")).splitlines())
