"""Dead letters: the original of a rejected request, with KIP-1191's headers on where it came from and why.

The one place that knows these headers: `DeadLetters` writes them, `read` takes them off again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from worker.codecs.answers import Header, readable
from worker.codecs.message_sizes import KEY_OMITTED, size_of
from worker.codecs.wire_contract import SHORT_MESSAGE
from worker.core.records import UNREADABLE_HEADERS, Headers, Message, Record, Rejection

_NAMESPACE = "__dlq."
PREFIX = _NAMESPACE + "errors."
_NAMES = ("topic", "partition", "offset", "group", "delivery.count", "message")
# Before the name of a request's header that would be taken for ours: `status` and `source` are an answer's.
REQUESTS = _NAMESPACE + "request."

# The parts of a request: the header that says how much of one was left out, and of what.
_PARTS = {
    "value": ("value-omitted", "bytes"),
    "key": (KEY_OMITTED, "bytes"),
    "headers": ("headers-omitted", "of them"),
}
# The parts that are left out of a letter that is too large: the first set that suffices. The value can be looked up
# where the request lies, so it goes first.
_OMISSIONS = (
    *((), ("value",), ("headers",), ("key",)),
    *(("value", "key"), ("key", "headers"), ("value", "headers"), tuple(_PARTS)),
)

# A letter's words beside those of its namespace, and an answer's. Names are compared without case, as readers do.
_WORDS = frozenset({"error-code", *(name for name, _ in _PARTS.values())})
_RENAMED = _WORDS | {"status", "source"}
_OURS = _WORDS | {PREFIX + name for name in _NAMES}

# How the message begins for a record that could not be read: of such a record there is nothing to keep.
UNREADABLE = "the record could not be read"


class DeadLetters:
    """Writes the dead letters of one consumer group for one topic that takes records of at most `limit` bytes."""

    def __init__(self, topic: str, group_id: str, limit: int) -> None:
        self._topic = topic
        self._group = group_id.encode()
        self._limit = limit

    def letter(self, rejection: Rejection) -> Message:
        """Key, value and headers as they came, and ours behind them; without parts that do not fit."""
        record = rejection.record
        original = _original(record.headers)
        headers = [*original, *self._ours(rejection)]
        letter = Message(self._topic, record.key, record.value, headers, record.partition.number)
        # Nearly all fit; to count takes 1 µs.
        return letter if size_of(letter) <= self._limit else self._shortened(letter, rejection, original)

    def _shortened(self, letter: Message, rejection: Rejection, original: list[Header]) -> Message:
        """The letter with a short message, and without the parts that have no room."""
        ours = self._ours(rejection._replace(message=rejection.message[:SHORT_MESSAGE]))
        shortened = [_without(parts, letter, original, ours) for parts in _OMISSIONS]
        return next((each for each in shortened if size_of(each) <= self._limit), shortened[-1])

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


def _without(parts: Sequence[str], letter: Message, original: list[Header], ours: list[Header]) -> Message:
    """The letter without these parts of its request, and with headers that say so."""
    amounts = {"value": len(letter.value or b""), "key": len(letter.key or b""), "headers": len(original)}
    omitted = [part for part in parts if amounts[part]]
    said: list[Header] = [(_PARTS[part][0], b"%d" % amounts[part]) for part in omitted]
    return letter._replace(
        key=None if "key" in omitted else letter.key,
        value=None if "value" in omitted else letter.value,
        headers=[*(() if "headers" in omitted else original), *ours, *said],
    )


def _original(headers: Headers) -> list[Header]:
    """The request's own headers, with names that are not taken for ours.

    A dead letter that came back without a replay is described anew: its own words go.
    """
    plain = [name.lower() for name, _ in headers]
    was_letter = any(name.startswith(_NAMESPACE) for name in plain)
    if not was_letter and _RENAMED.isdisjoint(plain):
        return list(headers)
    dropped = _WORDS if was_letter else frozenset()
    return [
        (REQUESTS + header[0] if name in _RENAMED else header[0], header[1])
        for name, header in zip(plain, headers, strict=True)
        if not name.startswith(_NAMESPACE) and name not in dropped
    ]


def _as_sent(headers: Headers) -> list[Header]:
    """The request's own headers among those of its letter."""
    return [
        (name.removeprefix(REQUESTS), value)
        for name, value in headers
        if name not in _OURS and (name.startswith(REQUESTS) or not name.startswith(_NAMESPACE))
    ]


class Position(NamedTuple):
    """Where one record lies; prints as `topic/partition/offset`."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The position that `str` wrote; None for another text."""
        topic, _, rest = text.partition("/")
        partition, _, offset = rest.partition("/")
        is_one = topic and _is_number(partition) and _is_number(offset)
        return cls(topic, int(partition), int(offset)) if is_one else None

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Letter(NamedTuple):
    """A dead letter, read. A field that its headers do not tell is empty or None.

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
        if tuple(self.headers) == UNREADABLE_HEADERS:
            return "the request's headers could not be read"
        if self.omitted:
            return f"the request's {' and '.join(self.omitted)} did not fit into the dead letter"
        if self.record.value is None and self.message.startswith(UNREADABLE):
            return "the request could not be read, so the dead letter does not hold it"
        return None


def read(record: Record) -> Letter:
    """The letter that a record of a dead-letter topic is, whichever program wrote it. Of a name the last counts."""
    said = {name: value or b"" for name, value in record.headers if name in _OURS}
    texts = {name: value.decode(errors="backslashreplace") for name, value in said.items()}
    place = "/".join(texts.get(PREFIX + name, "") for name in ("topic", "partition", "offset"))
    return Letter(
        record,
        texts.get("error-code", ""),
        texts.get(PREFIX + "message", ""),
        Position.parse(place),
        texts.get(PREFIX + "group", ""),
        _as_sent(record.headers),
        {part: f"{texts[name]} {unit}" for part, (name, unit) in _PARTS.items() if name in texts},
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19  # as many digits as an offset can have
