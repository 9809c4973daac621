"""Dead letters: the originals of rejected requests, with KIP-1191's headers, which say where they lay and what failed.

Only this module knows these headers: `DeadLetters` writes them, `read` takes them off again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from worker.codecs.message_sizes import KEY_OMITTED, Header, readable, size_of
from worker.codecs.wire_contract import SHORT_MESSAGE
from worker.core.records import UNREADABLE_HEADERS, Headers, Message, Record, Rejection

_NAMESPACE = "__dlq."
PREFIX = _NAMESPACE + "errors."
_NAMES = ("topic", "partition", "offset", "group", "delivery.count", "message")
# The prefix for a request's header whose name is one of ours: `status` and `source` are headers of answers.
REQUESTS = _NAMESPACE + "request."

# The parts of a request, each with the header that says how much was left out, and the unit.
_PARTS = {
    "value": ("value-omitted", "bytes"),
    "key": (KEY_OMITTED, "bytes"),
    "headers": ("headers-omitted", "of them"),
}
# Sets of parts to leave out of a letter that is too large; the first that suffices is taken. The value comes first,
# because it can be looked up where the request lies.
_OMISSIONS = (
    *((), ("value",), ("headers",), ("key",)),
    *(("value", "key"), ("key", "headers"), ("value", "headers"), tuple(_PARTS)),
)

# A letter's own headers outside its namespace, and an answer's. Names are compared without case, as readers do.
_WORDS = frozenset({"error-code", *(name for name, _ in _PARTS.values())})
_RENAMED = _WORDS | {"status", "source"}
_OURS = _WORDS | {PREFIX + name for name in _NAMES}

# The beginning of the message for a record that could not be read. Its letter holds nothing of the record.
UNREADABLE = "the record could not be read"


class DeadLetters:
    """Writes the dead letters of one consumer group for one topic that takes records of at most `limit` bytes."""

    def __init__(self, topic: str, group_id: str, limit: int) -> None:
        self._topic = topic
        self._group = group_id.encode()
        self._limit = limit

    def letter(self, rejection: Rejection) -> Message:
        """The letter: key, value and headers as they came, then our headers; without the parts that do not fit."""
        record = rejection.record
        original = _original(record.headers)
        headers = [*original, *self._ours(rejection)]
        letter = Message(self._topic, record.key, record.value, headers, record.partition.number)
        # Nearly all letters fit. To count the bytes takes 1 µs.
        return letter if size_of(letter) <= self._limit else self._shortened(letter, rejection, original)

    def _shortened(self, letter: Message, rejection: Rejection, original: list[Header]) -> Message:
        """The letter with a short message, and without the parts that do not fit."""
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
    """The request's own headers, renamed where a name is one of ours.

    If a dead letter came back without a replay, its own headers are dropped, because it gets new ones.
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
    """The request's own headers, found among its letter's headers."""
    return [
        (name.removeprefix(REQUESTS), value)
        for name, value in headers
        if name not in _OURS and (name.startswith(REQUESTS) or not name.startswith(_NAMESPACE))
    ]


class Position(NamedTuple):
    """The position of one record; prints as `topic/partition/offset`."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The position that `str` wrote; None for any other text."""
        topic, _, rest = text.partition("/")
        partition, _, offset = rest.partition("/")
        is_one = topic and _is_number(partition) and _is_number(offset)
        return cls(topic, int(partition), int(offset)) if is_one else None

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Letter(NamedTuple):
    """A dead letter, read. A field that its headers do not tell is empty or None.

    `origin` is the request's position, and `headers` are the request's own. `omitted` holds the parts of the request
    that did not fit into the letter (`value`, `key`, `headers`), and how much each was (`5000000 bytes`).
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
        """The position of the letter itself."""
        (topic, number), offset = self.record.partition, self.record.offset
        return Position(topic, number, offset)

    @property
    def loss(self) -> str | None:
        """The reason why the original cannot be made from it; None if it can."""
        if tuple(self.headers) == UNREADABLE_HEADERS:
            return "the record's headers could not be read"
        if self.omitted:
            return f"the record's {' and '.join(self.omitted)} did not fit into the dead letter"
        if self.record.value is None and self.message.startswith(UNREADABLE):
            return "the record could not be read, so the dead letter does not hold it"
        return None


def read(record: Record) -> Letter:
    """Read a record of a dead-letter topic, whichever program wrote it. The last header of a name counts."""
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
