"""Is there room for a row of this model in a request, for its answer, and for its state? Asked before requests come.

A model with images of 640 by 640 loads, warms up, and has each request refused for its length. Only what numbers take
as bytes is counted: how long texts are is not known, and numbers are seldom shorter in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from worker.codecs.message_sizes import OVERHEAD
from worker.codecs.wire_contract import Wire
from worker.core.failures import BadConfiguration, RunFailure
from worker.core.records import Array
from worker.core.tensors.signature import Signature

# A record that says that a key is forgotten has a header: `offset`, up to 19 digits, and 10 for their lengths.
_FORGOTTEN = 35


class ProbedModel(Protocol):
    """The part of `inference.Model` that is asked here."""

    @property
    def signature(self) -> Signature: ...
    def blank(self, rows: int) -> Mapping[str, Array]: ...
    def probe(self) -> Sequence[Array] | RunFailure: ...


def lack_of_room(model: ProbedModel, signature: Signature, wire: Wire) -> list[str]:
    """What is too long of a row's request, and of its answer; with the cure. Empty where all fits, or nothing runs.

    `signature` is of what requests bring and answers hold: of a model with state less than it takes and gives.
    Of a row on which the model runs: an axis that its file leaves open may be shorter there than in any request.
    """
    row, answer = model.blank(1), model.probe()
    if isinstance(answer, RunFailure):
        return []
    asked = _bytes_of([row[spec.name] for spec in signature.required])
    given = {spec.name: array for spec, array in zip(model.signature.outputs, answer, strict=True)}
    answered = _bytes_of([given[spec.name] for spec in signature.outputs]) // len(answer[0])
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
    """How long a key may be, so that this topic, which takes records of `limit` bytes, takes its state.

    Raises `BadConfiguration` where it takes that of no key: each transaction would fail.
    """
    room = limit - OVERHEAD - max(state_bytes, _FORGOTTEN)
    if room > 0:
        return room
    raise BadConfiguration(
        f"WORKER_KAFKA__CHANGELOG_TOPIC: the state of a key has {state_bytes:,} bytes, and topic {changelog} takes "
        f"records of {limit:,}: none could be kept; raise its max.message.bytes"
    )


def _bytes_of(arrays: Sequence[Array]) -> int:
    return sum(array.nbytes for array in arrays if array.dtype != object)
