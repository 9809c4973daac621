"""Log lines: short past-tense facts with fields, as one JSON object per line or as text for people (`readable.py`).

Everything goes through here, librdkafka's lines and other libraries' too, so that all are formatted alike and no
secret leaves the process: a field with a secret's name is blanked, and what looks like a secret inside a text.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from worker.core import secrets
from worker.telemetry.readable import ReadableLines, escaped

REDACTED = "[redacted]"
LogFormat = Literal["auto", "json", "console"]
SUM_UP_EVERY = 10.0  # seconds between two lines: soon enough for an operator, six a minute in the log
LONGEST_ID = 128  # a request id is whatever the publisher sent; a line must stay a line

_SECRETS_IN_TEXT = (
    (secrets.PEM, REDACTED),
    (secrets.LOGIN, REDACTED),
    (secrets.SETTING, rf"\1{REDACTED}"),
)


def configure(log_format: LogFormat, level: str, stream: TextIO | None = None) -> bool:
    """Send all log lines of this level and above to `stream`, standard error unless given. Called once, before any.

    `auto`: readable in a terminal, JSON elsewhere. Whether a person reads along is returned: readable, in a terminal.
    """
    out = stream or sys.stderr
    in_terminal = out.isatty()
    is_readable = log_format == "console" or (log_format == "auto" and in_terminal)
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
        redact,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _headed,
                ReadableLines(in_terminal=in_terminal)
                if is_readable
                else structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    return is_readable and in_terminal


class RecurringFailure:
    """One kind of failure, counted until the next line about it is due. `fact` is what the line says.

    Bad requests or an absent broker make thousands of failures a second; a line for each would hide the first one and
    fill the disk. The metrics count all.
    """

    def __init__(self, fact: str) -> None:
        self.fact = fact
        self._reasons: Counter[str] = Counter()
        self._example = ""
        self._quiet_until = 0.0

    def happened(self, reason: str, example: str) -> None:
        self._reasons[reason] += 1
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
    """What the Kafka clients take as `logger=`: their lines come out with ours, under the name `librdkafka`."""
    return logging.getLogger("librdkafka")


def printable(text: str, longest: int = LONGEST_ID) -> str:
    """A publisher's or a library's text, fit for a line: control characters escaped, cut at `longest` characters."""
    return escaped(text if len(text) <= longest else f"{text[: longest - 1]}…")


def redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A structlog processor: no value of a field named like a secret, no secret inside a text."""
    for name, value in event.items():
        event[name] = _clean(name, value)
    return event


def _headed(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Time, level and event come first: that is how lines are read."""
    return {**{name: event[name] for name in ("at", "level", "event") if name in event}, **event}


def _clean(name: str, value: Any) -> Any:
    if secrets.NAME.search(name):
        return REDACTED
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, dict):
        # Its names may be topics, or reasons that are counted: a number is no secret, whatever it is called.
        return {
            cleaned(str(inner)): held if isinstance(held, int | float) else _clean(str(inner), held)
            for inner, held in value.items()
        }
    if isinstance(value, list | tuple | set):
        return [_clean("", held) for held in value]
    return value


def cleaned(text: str) -> str:
    """The text without what looks like a secret in it."""
    for pattern, replacement in _SECRETS_IN_TEXT:
        text = pattern.sub(replacement, text)
    return text
