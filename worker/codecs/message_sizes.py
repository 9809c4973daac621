"""How large a record to produce is, and how an answer that is too large is made to fit."""

from __future__ import annotations

from worker.core.records import Headers, Message

# What a record and the set around it add to key, value and headers: at most 61 + 36 bytes (message format 2).
OVERHEAD = 100
_PER_HEADER = 10  # two lengths as varints, of at most five bytes each

# More than the headers of any answer and the overhead take: five echoes and a request id of 1 KiB at most, a source of
# at most 281 bytes, names and lengths. An answer that has so much room need not be counted.
ROOM_FOR_HEADERS = 8 * 1024

KEY_OMITTED = "key-omitted"


def size_of(message: Message) -> int:
    """The bytes the message takes in a topic, rounded up."""
    return OVERHEAD + len(message.key or b"") + len(message.value or b"") + size_of_headers(message.headers)


def size_of_headers(headers: Headers) -> int:
    """What they add to it."""
    size = 0
    for name, value in headers:
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
