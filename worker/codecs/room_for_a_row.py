"""Is there room for a row of this model in a request, and for its answer? Asked before the first request comes.

A model with images of 640 by 640 loads, warms up, and has each request refused for its length. Only what numbers take
as bytes is counted: how long texts are is not known, and numbers are seldom shorter in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from worker.codecs.wire_contract import Wire
from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.core.tensors.signature import Signature


class ProbedModel(Protocol):
    """What is asked of a model: `inference.Model` has it."""

    @property
    def signature(self) -> Signature: ...
    def blank(self, rows: int) -> Mapping[str, Array]: ...
    def probe(self) -> Sequence[Array] | RunFailure: ...


def lack_of_room(model: ProbedModel, wire: Wire) -> list[str]:
    """What is too long of a row's request, and of its answer; with the cure. Empty where all fits, or nothing runs.

    Of a row on which the model runs: an axis that its file leaves open may be shorter there than in any request.
    """
    row, answer = model.blank(1), model.probe()
    if isinstance(answer, RunFailure):
        return []
    asked = _bytes_of([row[spec.name] for spec in model.signature.required])
    answered = _bytes_of(answer) // len(answer[0])
    lacks = []
    if asked > wire.max_request_bytes:
        lacks.append(
            f"a request of one row has {asked:,} bytes and more, and WORKER_KAFKA__MAX_REQUEST_BYTES is "
            f"{wire.max_request_bytes:,}: longer requests are rejected; raise it, and max.message.bytes of the request "
            "topics above it"
        )
    if answered > wire.max_answer_bytes:
        topics = " or ".join(wire.reply_topics) or wire.response_topic
        lacks.append(
            f"the answer to one row has {answered:,} bytes and more, and topic {topics} takes records of "
            f"{wire.max_answer_bytes:,}: longer answers become errors; raise its max.message.bytes, or export the "
            "model with smaller outputs"
        )
    return lacks


def _bytes_of(arrays: Sequence[Array]) -> int:
    return sum(array.nbytes for array in arrays if array.dtype != object)
