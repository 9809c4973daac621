"""Words of the wire contract, which `schemas/README.md` explains, and a deployment's decisions about it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
OCTETS = "application/octet-stream"
CONTENT_TYPES = (JSON, PROTOBUF, OCTETS)

HEAD_LENGTH = "Inference-Header-Content-Length"
DATATYPE, ROWS = "datatype", "rows"  # of plain rows
MODEL_VERSION = "model-version"

MIB = 1024 * 1024

# Longest value of a header that is read or echoed, and longest id of a request, in bytes. With it, every error answer
# except its key is bounded.
MAX_TEXT = 1024

# Longest message of an error, in characters: a line or two for people, whatever a model had to say.
MAX_MESSAGE = 1024
SHORT_MESSAGE = 200  # where a topic has no room for more


@dataclass(frozen=True, slots=True)
class Wire:
    """A deployment's choices. Limits are in bytes; `default_timeout`, for requests that name none, is in seconds.

    `max_request_bytes` bounds a request's value before it is decoded, and `max_json_bytes` the part of it that a parser
    takes apart, which is no tensor's bytes; `max_answer_bytes` and `max_dead_letter_bytes`
    are what the two topics take as one record, `reply_bytes` what other topics take that requesters may name.
    `null_value` "skip": a record with a null value is settled without an answer. `non_finite_output`: for NaN and
    infinity in an answer as JSON, which has neither; "error" means that none gets so far. `has_state`: each request
    needs a key, of at most `max_key_bytes`, so that it fits into the changelog beside its state. `must_state_rows`:
    plain rows without the headers `datatype` and `rows` are refused. `reply_topics`: how many partitions the response
    topic has, and each other topic that requesters may name; topics that are `shut`, and why, get no answer.
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
    reply_topics: Mapping[str, int] = field(default_factory=dict)
    reply_bytes: Mapping[str, int] = field(default_factory=dict)
    shut: Mapping[str, str] = field(default_factory=dict)

    def room_in(self, topic: str) -> int:
        """The bytes of one record that a topic of answers takes."""
        return self.reply_bytes.get(topic, self.max_answer_bytes)
