"""The names in the wire contract, which `schemas/README.md` explains, and a deployment's choices about it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from worker.codecs.records.framed_values import FramedValues
    from worker.codecs.records.mapping import RecordMapping

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
OCTETS = "application/octet-stream"
CONTENT_TYPES = (JSON, PROTOBUF, OCTETS)
RECORD = "record"  # no content type: what the topic holds if it holds records

HEAD_LENGTH = "Inference-Header-Content-Length"
DATATYPE, ROWS = "datatype", "rows"  # of plain rows
MODEL_VERSION = "model-version"

MIB = 1024 * 1024

# The most bytes of a header that is read or echoed, and of a request's id. So every error answer is bounded, except its
# key.
MAX_TEXT = 1024

# The most characters of an error's message: a line or two for people, however much the model's own error says.
MAX_MESSAGE = 1024
SHORT_MESSAGE = 200  # if a topic has no room for more


@dataclass(frozen=True, slots=True)
class Wire:
    """A deployment's choices. Limits are in bytes; `default_timeout`, for requests that name none, is in seconds.

    `max_request_bytes` bounds a request's value before it is decoded, and `max_json_bytes` the part that a parser takes
    apart, without the bytes of tensors. `max_answer_bytes` and `max_dead_letter_bytes` are the largest records of the
    two topics; `reply_bytes` has the sizes for other topics that requesters may name. `null_value` "skip": a null value
    is settled without an answer. `non_finite_output` is for NaN and infinity in a JSON answer, which has no form for
    them; with "error" none gets that far. `has_state`: each request needs a key of at most `max_key_bytes`, so
    that it fits into the changelog with its state. `must_state_rows`: plain rows without the headers `datatype` and
    `rows` are refused. `reply_topics`: the numbers of partitions of the response topic and the other topics that
    requesters may name. `shut`: topics that get no answer, and why. `records`: the mapping of a topic that holds
    records, None if it holds requests. `framed` reads those whose schema is in a registry.
    """

    response_topic: str
    group_id: str
    dead_letter_topic: str | None = None
    default_content_type: str = JSON
    default_timeout: float | None = None
    max_request_bytes: int = MIB
    max_json_bytes: int = MIB
    max_answer_bytes: int = 1_000_000  # librdkafka's default `message.max.bytes`
    max_dead_letter_bytes: int = 1_000_000
    null_value: Literal["reject", "skip"] = "reject"
    non_finite_output: Literal["error", "allow", "null"] = "error"
    has_state: bool = False
    max_key_bytes: int = sys.maxsize
    must_state_rows: bool = False
    records: RecordMapping | None = None
    framed: FramedValues | None = None
    reply_topics: Mapping[str, int] = field(default_factory=dict)
    reply_bytes: Mapping[str, int] = field(default_factory=dict)
    shut: Mapping[str, str] = field(default_factory=dict)

    def room_in(self, topic: str) -> int:
        """The size in bytes of the largest record that a topic of answers takes."""
        return self.reply_bytes.get(topic, self.max_answer_bytes)
