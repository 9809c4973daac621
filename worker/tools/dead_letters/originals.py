"""The request that a dead letter was, made again. Pure."""

from __future__ import annotations

from worker.codecs.dead_letters import Letter
from worker.codecs.registry import readable_id
from worker.codecs.request_headers import DEADLINE, REQUEST_ID, TIMEOUT, Envelopes
from worker.core.records import Message

REPLAY_OF = "replay-of"


def original(letter: Letter, topic: str, envelopes: Envelopes) -> Message:
    """The request as it was, for `topic`: key, value and headers. Only for letters that have no `loss`.

    But for when its answer was wanted: its publisher waits no more, and the operator who sends it back wants one.
    A request that had no id of its own gets the one by which its publisher knows it, the place where it lay. The
    header `replay-of` says that place too; a request that was a replay already keeps its first one. `envelopes` reads
    headers as the workers do.
    """
    record, origin = letter.record, letter.origin
    headers = [header for header in letter.headers if header[0].lower() not in (TIMEOUT, DEADLINE)]
    if origin is not None:
        place = str(origin).encode()
        if not _has_id(letter, envelopes):
            headers.append((REQUEST_ID, place))
        if all(name != REPLAY_OF for name, _ in headers):
            headers.append((REPLAY_OF, place))
    return Message(topic, record.key, record.value, headers, origin.partition if origin else record.partition.number)


def _has_id(letter: Letter, envelopes: Envelopes) -> bool:
    """As a worker finds it: in the header, else in the body."""
    envelope = envelopes.read(letter.headers)
    return envelope.reply.request_id is not None or bool(readable_id(letter.record.value, envelope))
