"""Computes the size of a record to produce, and whether a topic takes it; cuts an error's message to its size.

The start checks if a row of the model fits, because a model with images of 640 by 640 would load and warm up, and then
have each request refused for its length. Only the bytes of numbers count: the length of texts is not known, and numbers
are seldom shorter in JSON.
"""

from __future__ import annotations

from worker.codecs.wire_contract import MAX_MESSAGE, Wire
from worker.core.failures import BadConfiguration
from worker.core.records import Fields, Headers, Message
from worker.core.tensors.signature import Signature

Header = tuple[str, bytes | None]

# The bytes that a record and the set around it add to key, value and headers: at most 61 + 36 (message format 2).
OVERHEAD = 100
_PER_HEADER = 10  # two lengths as varints, of at most five bytes each

# More than the overhead and the headers of any answer take: five echoes and a request id of 1 KiB at most, a source of
# at most 281 bytes, names and lengths. If an answer leaves this much room, its headers need not be counted.
ROOM_FOR_HEADERS = 8 * 1024

KEY_OMITTED = "key-omitted"


def size_of(message: Fields) -> int:
    """The bytes the message takes in a topic, rounded up."""
    _, key, value, headers, _, _ = message
    return OVERHEAD + len(key or b"") + len(value or b"") + size_of_headers(headers or ())


def size_of_headers(headers: Headers) -> int:
    """The bytes that headers add to a message."""
    size = 0
    for name, value in headers:
        size += len(name.encode()) + len(value or b"") + _PER_HEADER
    return size


def fits(message: Fields, limit: int) -> bool:
    """True if a topic that takes `limit` bytes takes this answer."""
    _, key, value, _, _, _ = message
    return len(key or b"") + len(value or b"") + ROOM_FOR_HEADERS <= limit or size_of(message) <= limit


def without_key(message: Message) -> Message:
    """The message with a null key, and a header that says how many bytes it had."""
    omitted = (KEY_OMITTED, b"%d" % len(message.key or b""))
    return message._replace(key=None, headers=[*message.headers, omitted])


def readable(message: str) -> str:
    """An error's message made fit to be sent: not too long, and without the half characters of a quoted value."""
    whole = message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 3]}..."
    return whole.encode("utf-8", "backslashreplace").decode()


# Room for a row of the model: its request, its answer and its state

# Bytes of the header in a record that forgets a key: `offset`, up to 19 digits, and 10 for their lengths.
_FORGOTTEN = 35


def lack_of_room(signature: Signature, wire: Wire) -> list[str]:
    """The reasons why a row's request or answer is too long, with the cure. Tensors with open dimensions count as 0.

    A record may be shorter than the tensors that are made of it.
    """
    asked = 0 if wire.records is not None else sum(spec.row_bytes or 0 for spec in signature.required)
    answered = sum(spec.row_bytes or 0 for spec in signature.outputs)
    lacks = []
    if asked > wire.max_request_bytes:
        lacks.append(
            f"a request of one row has {asked:,} bytes and more, and WORKER_KAFKA__MAX_REQUEST_BYTES is "
            f"{wire.max_request_bytes:,}: longer requests are rejected; raise it, and max.message.bytes of the request "
            "topics above it"
        )
    lacks += [
        f"the answer to one row has {answered:,} bytes and more, and topic {topic} takes records of "
        f"{wire.room_in(topic):,}: longer answers become errors; raise its max.message.bytes, or export the model with "
        "smaller outputs"
        for topic in (wire.response_topic, *wire.reply_bytes)
        if answered > wire.room_in(topic)
    ]
    return lacks


def longest_key(changelog: str, limit: int, state_bytes: int) -> int:
    """The most bytes of a key whose state fits into this topic, which takes records of `limit` bytes.

    Raises `BadConfiguration` if the state of no key fits, because each transaction would fail.
    """
    room = limit - OVERHEAD - max(state_bytes, _FORGOTTEN)
    if room > 0:
        return room
    raise BadConfiguration(
        f"WORKER_KAFKA__CHANGELOG_TOPIC: the state of a key has {state_bytes:,} bytes, and topic {changelog} takes "
        f"records of {limit:,}: none could be kept; raise its max.message.bytes"
    )
