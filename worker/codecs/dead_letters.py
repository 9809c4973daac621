"""Dead letters: the original of a rejected request, with KIP-1191's headers on where it came from and why."""

from __future__ import annotations

from worker.codecs.answers import Header, readable
from worker.codecs.sizes import HEADERS_OMITTED, KEY_OMITTED, VALUE_OMITTED, size_of, without_key, without_value
from worker.codecs.wire import SHORT_MESSAGE
from worker.core.records import Message, Rejection

_PREFIX = "__dlq.errors."
_NAMES = ("topic", "partition", "offset", "group", "delivery.count", "message")

# Ours win: a request that was a dead letter before carries these names from then.
_OURS = frozenset({"error-code", VALUE_OMITTED, KEY_OMITTED, HEADERS_OMITTED, *(_PREFIX + name for name in _NAMES)})


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
        if size_of(letter) > self._limit:
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
            (_PREFIX + "topic", partition.topic.encode()),
            (_PREFIX + "partition", b"%d" % partition.number),
            (_PREFIX + "offset", b"%d" % offset),
            (_PREFIX + "group", self._group),
            (_PREFIX + "delivery.count", b"1"),  # a consumer group, unlike a share group, does not count deliveries
            (_PREFIX + "message", readable(rejection.message).encode()),
            ("error-code", rejection.code.encode()),
        ]
