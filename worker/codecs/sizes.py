"""How large a record to produce is, and how one that is too large is made to fit."""

from __future__ import annotations

from worker.core.records import Message

# What a record and the set around it add to key, value and headers: at most 61 + 36 bytes (message format 2).
OVERHEAD = 100
_PER_HEADER = 10  # two lengths as varints, of at most five bytes each

# More than the headers of any answer and the overhead take: five echoes and a request id of 1 KiB at most, a source of
# at most 281 bytes, names and lengths. An answer that has so much room need not be counted.
ROOM_FOR_HEADERS = 8 * 1024

VALUE_OMITTED, KEY_OMITTED, HEADERS_OMITTED = "value-omitted", "key-omitted", "headers-omitted"


def size_of(message: Message) -> int:
    """The bytes the message takes in a topic, rounded up."""
    size = OVERHEAD + len(message.key or b"") + len(message.value or b"")
    for name, value in message.headers:
        size += len(name.encode()) + len(value or b"") + _PER_HEADER
    return size


def fits(message: Message, limit: int) -> bool:
    """Whether a topic that takes `limit` bytes takes this answer."""
    if len(message.key or b"") + len(message.value or b"") + ROOM_FOR_HEADERS <= limit:
        return True
    return size_of(message) <= limit


def without_key(message: Message) -> Message:
    """The message with a null key, and a header that says how many bytes it had."""
    omitted = (KEY_OMITTED, b"%d" % len(message.key or b""))
    return message._replace(key=None, headers=[*message.headers, omitted])


def without_value(message: Message) -> Message:
    """The message with a null value, and a header that says how many bytes it had."""
    omitted = (VALUE_OMITTED, b"%d" % len(message.value or b""))
    return message._replace(value=None, headers=[*message.headers, omitted])
