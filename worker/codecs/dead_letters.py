"""Dead letters: the original of a rejected request, with KIP-1191's headers on where it came from and why.

The one place that knows these headers: `DeadLetters` writes them, `read` takes them off again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from worker.codecs.answers import Header, readable
from worker.codecs.sizes import HEADERS_OMITTED, KEY_OMITTED, VALUE_OMITTED, size_of, without_key, without_value
from worker.codecs.wire import SHORT_MESSAGE
from worker.core.records import UNREADABLE_HEADERS, Headers, Message, Record, Rejection

_NAMESPACE = "__dlq."
PREFIX = _NAMESPACE + "errors."
_NAMES = ("topic", "partition", "offset", "group", "delivery.count", "message")

_OMISSIONS = {VALUE_OMITTED: ("value", "bytes"), KEY_OMITTED: ("key", "bytes"), HEADERS_OMITTED: ("headers", "of them")}

# Ours win: a request that was a dead letter before carries these names from then.
_OURS = frozenset({"error-code", *_OMISSIONS, *(PREFIX + name for name in _NAMES)})

# How the message begins for a record that nobody could read: of such a one there is nothing to keep.
UNREADABLE = "the record could not be read"


class DeadLetters:
    """Writes the dead letters of one consumer group for one topic that takes records of at most `limit` bytes."""

    def __init__(self, topic: str, group_id: str, limit: int) -> None:
        self._topic = topic
        self._group = group_id.encode()
        self._limit = limit

    def letter(self, rejection: Rejection) -> Message:
        """Key, value and headers as they came, and ours behind them. What does not fit is left out, value first."""
        record = rejection.record
        original = [header for header in record.headers if header[0] not in _OURS]
        headers = [*original, *self._ours(rejection)]
        letter = Message(self._topic, record.key, record.value, headers, record.partition.number)
        if size_of(letter) <= self._limit:  # as nearly all do; to count takes 1 µs
            return letter
        letter = without_value(letter)
        if size_of(letter) > self._limit:
            letter = without_key(letter)
        return letter if size_of(letter) <= self._limit else self._bare(letter, rejection, len(original))

    def _bare(self, letter: Message, rejection: Rejection, omitted: int) -> Message:
        said = self._ours(rejection._replace(message=rejection.message[:SHORT_MESSAGE]))
        kept = [header for header in letter.headers if header[0] in (VALUE_OMITTED, KEY_OMITTED)]
        return letter._replace(headers=[*said, *kept, (HEADERS_OMITTED, b"%d" % omitted)])

    def _ours(self, rejection: Rejection) -> list[Header]:
        partition, offset = rejection.record.partition, rejection.record.offset
        return [
            (PREFIX + "topic", partition.topic.encode()),
            (PREFIX + "partition", b"%d" % partition.number),
            (PREFIX + "offset", b"%d" % offset),
            (PREFIX + "group", self._group),
            (PREFIX + "delivery.count", b"1"),  # a consumer group, unlike a share group, does not count deliveries
            (PREFIX + "message", readable(rejection.message).encode()),
            ("error-code", rejection.code.encode()),
        ]


class Position(NamedTuple):
    """Where one record lies; prints as `topic/partition/offset`."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """What `str` made; None for what it did not."""
        topic, _, rest = text.partition("/")
        partition, _, offset = rest.partition("/")
        is_one = topic and _is_number(partition) and _is_number(offset)
        return cls(topic, int(partition), int(offset)) if is_one else None

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Letter(NamedTuple):
    """A dead letter, read. What its headers do not say is empty or None.

    `origin` is where the request lay; `headers` are the request's own; `omitted` holds what of the request did not fit
    into the letter (`value`, `key`, `headers`) and how much it was (`5000000 bytes`).
    """

    record: Record
    code: str
    message: str
    origin: Position | None
    group: str
    headers: Headers
    omitted: Mapping[str, str]

    @property
    def position(self) -> Position:
        """Where the letter itself lies."""
        (topic, number), offset = self.record.partition, self.record.offset
        return Position(topic, number, offset)

    @property
    def loss(self) -> str | None:
        """Why the original cannot be made from it; None when it can."""
        if self.record.unreadable is not None:
            return "the dead letter cannot be read"
        if tuple(self.headers) == UNREADABLE_HEADERS:
            return "the request's headers could not be read"
        if self.omitted:
            return f"the request's {' and '.join(self.omitted)} did not fit into the dead letter"
        if self.record.value is None and self.message.startswith(UNREADABLE):
            return "the request could not be read, so the dead letter does not hold it"
        return None


def read(record: Record) -> Letter:
    """The letter that a record of a dead-letter topic is, whoever wrote it. Of a name the last counts."""
    said = {name: value or b"" for name, value in record.headers if name in _OURS}
    texts = {name: value.decode(errors="backslashreplace") for name, value in said.items()}
    place = "/".join(texts.get(PREFIX + name, "") for name in ("topic", "partition", "offset"))
    return Letter(
        record,
        texts.get("error-code", ""),
        texts.get(PREFIX + "message", ""),
        Position.parse(place),
        texts.get(PREFIX + "group", ""),
        [header for header in record.headers if header[0] not in _OURS and not header[0].startswith(_NAMESPACE)],
        {what: f"{texts[name]} {unit}" for name, (what, unit) in _OMISSIONS.items() if name in texts},
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19  # as many digits as an offset can have
