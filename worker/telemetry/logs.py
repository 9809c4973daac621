"""Log lines: short past-tense facts with fields, as one JSON object per line, or as text for people.

All lines go through here, librdkafka's and other libraries' too, so that all are formatted alike and no secret leaves
the process: a field with a secret's name is blanked, and so is a secret inside a text. structlog takes our facts, and
Python's own logging writes all lines.

Text in a terminal has local time. A field that is a sentence, such as `why`, has a line of its own there, so that a
command in it can be copied whole. Text elsewhere keeps to one line, with date and zone.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from worker.core import secrets
from worker.core.failures import Code
from worker.core.records import Rejection
from worker.core.tensors.stacking import VALUE_NOT_TAKEN

REDACTED = "[redacted]"
OURS = "worker"  # the logger of our own facts
LogFormat = Literal["auto", "json", "console"]
Event = dict[str, Any]
SUM_UP_EVERY = 10.0  # seconds between two lines: soon enough for an operator, six a minute in the log
LONGEST_REASON = 200  # characters: a line
LONGEST_ID = 128  # a request id is whatever the publisher sent; a line must stay a line

_SECRETS_IN_TEXT = (
    (secrets.PEM, REDACTED),
    (secrets.LOGIN, REDACTED),
    (secrets.SETTING, rf"\1{REDACTED}"),
)
# A quotation as `repr` writes it, up to the end of the text where the message cut it short; not the end of "model's".
_QUOTED = re.compile(r"""(?!(?<=[a-z]{2})'s\b)(['"])(?:\\.|(?!\1).)*(\1|\\?\Z)""", re.DOTALL)
_NUMBER = re.compile(r"-?\d[\w.+-]*")
_PLACED = ("at", "level", "event", "exception")  # fields that a text shows without their names
_INDENT = " " * len("12:34:56  ")
_YELLOW, _RED, _DIM, _RESET = "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
_COLOURS = {"warning": _YELLOW, "error": _RED, "critical": _RED}


def _as_record(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A structlog processor: the fact and its fields, as Python's logging takes them."""
    return {"msg": event.pop("event"), "extra": {"fields": event}}


structlog.configure(
    processors=[structlog.stdlib.filter_by_level, _as_record],
    wrapper_class=structlog.stdlib.BoundLogger,
    logger_factory=lambda *_: logging.getLogger(OURS),
)


def our_log() -> structlog.stdlib.BoundLogger:
    """The log of our own facts, each with its fields."""
    log: structlog.stdlib.BoundLogger = structlog.get_logger()
    return log


def configure(log_format: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Send log lines of this level and above to `stream`, or else to standard error. Called once, before any line.

    `auto`: readable in a terminal, JSON elsewhere.
    """
    out = stream or sys.stderr
    in_terminal = out.isatty()
    is_readable = log_format == "console" or (log_format == "auto" and in_terminal)
    handler = logging.StreamHandler(out)
    handler.setFormatter(Lines(ReadableLines(in_terminal=in_terminal) if is_readable else _as_json))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


class Lines(logging.Formatter):
    """Formats every line, ours and other libraries', as `render` writes an event."""

    def __init__(self, render: Callable[[Event], str]) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        event = {"at": at, "level": record.levelname.lower(), "event": record.getMessage()}
        if record.name != OURS:
            event["logger"] = record.name
        event |= getattr(record, "fields", {})
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return self._render({name: _clean(name, value) for name, value in event.items()})


def _as_json(event: Event) -> str:
    return json.dumps(event, default=str)


class ReadableLines:
    """Writes lines for people. `in_terminal`: with local time, in colour, over several lines."""

    def __init__(self, *, in_terminal: bool) -> None:
        self._in_terminal = in_terminal

    def __call__(self, event: Event) -> str:
        fields = {name: _told(value) for name, value in event.items() if name not in _PLACED and value is not None}
        sentences = {name: text for name, text in fields.items() if self._in_terminal and " " in text}
        short = " ".join(f"{name}={text}" for name, text in fields.items() if name not in sentences)
        at, level, fact = event["at"], event["level"], escaped(event["event"])
        if level != "info":
            fact = self._coloured(f"{level}: {fact}", _COLOURS.get(level, _DIM))
        if self._in_terminal:
            at = f"{datetime.fromisoformat(at).astimezone():%H:%M:%S}"
        head = "  ".join([at, fact, *([self._coloured(short, _DIM)] if short else [])])
        beneath = (f"{_INDENT}{name}: {text}" for name, text in sentences.items())
        trace = map(escaped, event.get("exception", "").splitlines())  # a defect's
        return "\n".join([head, *beneath, *trace])

    def _coloured(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._in_terminal else text


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{escaped(str(name))}:{_told(held)}" for name, held in value.items())
    if isinstance(value, list | tuple | set):
        return ",".join(map(_told, value))
    return escaped(str(value))


class RecurringFailure:
    """One kind of failure, counted until the next line about it is due.

    Bad requests or an absent broker make thousands of failures a second; a line for each would hide the first one and
    fill the disk. The metrics count all.
    """

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()
        self._example = ""
        self._quiet_until = 0.0

    def happened(self, reason: str, example: str, times: int = 1) -> None:
        self._reasons[reason] += times
        self._example = example

    def summary(self, now: float) -> dict[str, object] | None:
        """Fields for a line: at once for the first failure, then at most every `SUM_UP_EVERY` seconds."""
        if not self._reasons or now < self._quiet_until:
            return None
        fields = {"count": self._reasons.total(), "reasons": dict(self._reasons), "last": self._example}
        self._reasons.clear()
        self._quiet_until = now + SUM_UP_EVERY
        return fields


def kafka_logger() -> logging.Logger:
    """The `logger=` of Kafka's clients: their lines come out with ours, under the name `librdkafka`."""
    return logging.getLogger("librdkafka")


def escaped(text: str) -> str:
    """The text with everything escaped that could move a cursor, change a colour or begin a line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable(text: str, longest: int = LONGEST_ID) -> str:
    """A publisher's or a library's text, fit for a line: control characters escaped, cut at `longest` characters."""
    return escaped(text if len(text) <= longest else f"{text[: longest - 1]}…")


def _clean(name: str, value: Any) -> Any:
    """The value without secrets: blanked if its field is named like a secret, else with its texts cleaned."""
    if secrets.NAME.search(name):
        return REDACTED
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, dict):
        # Its keys may be topics, or reasons that are counted: a number is no secret, whatever its key is.
        return {
            cleaned(str(inner)): held if isinstance(held, int | float) else _clean(str(inner), held)
            for inner, held in value.items()
        }
    if isinstance(value, list | tuple | set):
        return [_clean("", held) for held in value]
    return value


def cleaned(text: str) -> str:
    """The text without anything in it that looks like a secret."""
    for pattern, replacement in _SECRETS_IN_TEXT:
        text = pattern.sub(replacement, text)
    return text


class RecentRejection(NamedTuple):
    """One rejection, and how many of its kind there were.

    `date` is in seconds since the epoch, and `message` is for its publisher alone.

    The message quotes the request, and the model's complaint may name a number of its input. `reason` masks both, only
    when an operator looks and not when a request is rejected.
    """

    code: str
    source: str
    message: str
    date: float
    times: int = 1

    @property
    def reason(self) -> str:
        """The message without its quotations, on one line."""
        message = self.message
        if self.code == Code.INTERNAL or message.startswith(VALUE_NOT_TAKEN):
            message = _NUMBER.sub("…", message)
        return printable(cleaned(_unquoted(message)), LONGEST_REASON)


def reason_of(rejection: Rejection) -> str:
    """The rejection's message without its quotations, on one line."""
    return RecentRejection(rejection.code, rejection.record.source, rejection.message, 0.0).reason


def _unquoted(message: str) -> str:
    quotations = list(_QUOTED.finditer(message))
    if quotations and not quotations[-1][2]:  # one was cut short, so the quotes before it may be wrongly paired
        return f"{message[: quotations[0].start()]}'…'"
    return _QUOTED.sub("'…'", message)
