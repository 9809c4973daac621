"""Decodes records to requests, and encodes outcomes to messages.

A bad record gives a `Rejection`, never an exception. Every outcome that is not silent becomes at least one message that
its topic takes. Pure: owns the models' signatures, the deployment's choices, and the common headers, as remembered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import groupby, takewhile
from operator import attrgetter

from worker.codecs.dead_letters import UNREADABLE
from worker.codecs.encodings.oip import (
    Body,
    judge,
    memory,
    reply_to,
    sequence_refused,
)
from worker.codecs.encodings.oip_json import JsonBody
from worker.codecs.encodings.raw_tensor import PlainRows
from worker.codecs.looks_like import looks_like
from worker.codecs.replies import ReplyTopics
from worker.codecs.request_headers import CONTENT_TYPE, Envelope, Envelopes
from worker.codecs.wire_contract import JSON, PROTOBUF, Wire
from worker.core.failures import Code, Reject
from worker.core.records import Record, Rejection, Reply, Request
from worker.core.rejections import Rejections
from worker.core.runs import Run, run_of
from worker.core.tensors.signature import Signature

_PARTITION = attrgetter("partition")
# A shorter run costs more than it saves.
_SHORTEST_RUN = 4


class Codecs:
    """The wire contract for some models: `decode` on the way in, `encode` on the way out."""

    def __init__(
        self,
        signatures: Sequence[Signature],
        wire: Wire,
        tell: Callable[[Rejection], object],
        rejections: Rejections | None = None,
    ) -> None:
        """A request that names no model, or no version, means the first signature.

        `tell` is called with each rejection that `encode` makes of a prediction; `rejections` counts all rejections.
        """
        self._first = signatures[0]
        self._by_name = {signature.name: signature for signature in reversed(signatures)}
        self._tell = tell
        self._rejections = rejections or Rejections()
        self._wire = wire
        self._envelopes = Envelopes(
            wire.default_content_type,
            wire.default_timeout,
            reads_state=wire.has_state,
            reply_topics=ReplyTopics(wire.response_topic, wire.reply_topics, wire.shut),
        )
        self._has_state, self._max_key_bytes = wire.has_state, wire.max_key_bytes
        self._rows = PlainRows(self._first, must_state=wire.must_state_rows)  # plain rows name no model

    def decode(self, record: Record) -> Request | Rejection:
        """The request that the record holds, or its rejection if the model does not take it. Never raises."""
        envelope = self._envelopes.read(record.headers)
        value, reply = record.value, envelope.reply
        try:
            is_unfit = self._has_state and not self._can_have_state(record)
            if not value or is_unfit or envelope.fault is not None or len(value) > self._wire.max_request_bytes:
                raise self._refusal_of(record, envelope)
            if envelope.rows is not None:
                return self._rows.request(record, value, envelope)
            body = parse(value, envelope, self._wire.max_json_bytes)
            reply = _named(reply, body.body_id)
            return self._request(record, envelope, body, reply)
        except Reject as no:
            if envelope.fault is not None:
                reply = self._reply_despite(envelope, value)
            message = _explained(no, record, envelope)
            return Rejection(record, no.code, message, reply, is_silent=self._is_skipped(record))

    def decode_all(self, records: Sequence[Record]) -> Sequence[Request | Rejection]:
        """Decode each record, in order. Neighbours in one partition with rows of one form become one `Run`."""
        if not self._rows.may_run:
            return [self.decode(record) for record in records]
        decoded: list[Request | Rejection] = []
        for _, neighbours in groupby(records, _PARTITION):
            decoded += self._decode_line(list(neighbours))
        return decoded

    def _decode_line(self, records: Sequence[Record]) -> Sequence[Request | Rejection]:
        """Decode the records of one partition. If no run begins at a record, the next look is further on each time.

        Usually either no record is odd, or each is: bad requests, or requests with an id of their own in their values.
        """
        decoded: list[Request | Rejection] = []
        at, step = 0, 1
        while len(records) - at >= _SHORTEST_RUN:
            if self._rows.may_begin(len(records[at].value or b""), self._envelopes.read(records[at].headers)):
                return [*decoded, *self._decode_rows(records[at:])]
            first = self.decode(records[at])
            run = self._run_of_forms(first, records, at)
            if run is not None:
                decoded.append(run)
                at, step = at + len(run.records), 1
            else:
                decoded += [first, *map(self.decode, records[at + 1 : at + step])]
                at, step = at + step, 2 * step
        return [*decoded, *map(self.decode, records[at:])]

    def _decode_rows(self, records: Sequence[Record]) -> Sequence[Request | Rejection]:
        """Decode records that begin with rows. Odd records are found by halving, because a look at all is cheap."""
        run = self._run(records)
        if run is not None:
            return (run,)
        middle = len(records) // 2
        return [*self._decode_line(records[:middle]), *self._decode_line(records[middle:])]

    def _run(self, records: Sequence[Record]) -> Run | None:
        """All these records as one run; None if they are not alike, or one of them is no request."""
        values = [record.value for record in records if record.value]
        length = len(values[0]) if values else 0
        if len(values) < len(records) or length > self._wire.max_request_bytes or set(map(len, values)) != {length}:
            return None
        if self._has_state and not all(map(self._can_have_state, records)):
            return None
        read = self._envelopes.read
        differing = records[:1] if have_equal_headers(records) else records
        return self._rows.run(records, values, [read(record.headers) for record in differing])

    def _run_of_forms(self, first: Request | Rejection, records: Sequence[Record], at: int) -> Run | None:
        """The run of records from `at` on that equal `first` byte for byte, except the keys and the rows at the end."""
        if isinstance(first, Rejection) or first.state is not None:
            return None
        (tensor,), value = first.tensors, first.record.value or b""
        if not is_answered_by_bytes(first.reply) or not isinstance(tensor, bytes | memoryview):
            return None
        head = value[: -len(tensor)]
        records = records[at : _end_of_alike(records, at, head)]
        if self._has_state:
            records = list(takewhile(self._can_have_state, records))
        if len(records) < _SHORTEST_RUN:
            return None
        if not self._is_decided_by_its_end(first, head, tensor):
            return None
        extra = first.size - len(records[0].key or b"")
        sizes = [len(record.key or b"") + extra for record in records]
        rows = [(record.value or b"")[len(head) :] for record in records]
        replies = [first.reply] * len(records)
        timeouts = [first.timeout] * len(records) if first.timeout is not None else ()
        return run_of(records, rows, first.rows, first.shapes, replies, sizes, first.model, timeouts)

    def _is_decided_by_its_end(self, first: Request, head: bytes, tensor: bytes | memoryview) -> bool:
        """True if the bytes after the head are the tensor itself: a try with other bytes there gives another tensor.

        A protobuf field of integers reads these other bytes as parts of one number; small numbers are single bytes.
        """
        other = (b"\xfe" if tensor != b"\xfe" * len(tensor) else b"\xfd") * len(tensor)
        changed = self.decode(first.record._replace(value=head + other))
        found = changed.tensors[0] if isinstance(changed, Request) and changed.reply == first.reply else None
        return isinstance(found, bytes | memoryview) and found == other

    def description(self, record: Record) -> str | None:
        """The look of a record that is no request, in words; None if it looks like nothing known."""
        return looks_like(record.value, self._envelopes.read(record.headers).content_type) if record.value else None

    def refuse(self, record: Record, code: Code, message: str) -> Rejection:
        """The rejection of a record whose value is not looked at."""
        return Rejection(record, code, message, self._envelopes.read(record.headers).reply)

    def _refusal_of(self, record: Record, envelope: Envelope) -> Reject:
        """The reason why the value may not be decoded."""
        value = record.value
        if record.unreadable is not None:
            return Reject(f"{UNREADABLE}: {record.unreadable}")
        if envelope.fault is not None:
            return Reject(envelope.fault)
        if not value:
            return Reject(f"expected a request, got {'an empty' if value is not None else 'a null'} value")
        if self._has_state and record.key is None:
            return Reject("expected a key: the model remembers something of each key, and this request has none")
        if self._has_state and not self._can_have_state(record):
            return Reject(
                f"the key has {len(record.key or b'')} bytes, at most {self._max_key_bytes} fit into the changelog "
                "beside a state",
                Code.RESOURCE_EXHAUSTED,
            )
        return Reject(
            f"the value has {len(value)} bytes, at most {self._wire.max_request_bytes} are taken",
            Code.RESOURCE_EXHAUSTED,
        )

    def _can_have_state(self, record: Record) -> bool:
        return record.key is not None and len(record.key) <= self._max_key_bytes

    def _reply_despite(self, envelope: Envelope, value: bytes | None) -> Reply:
        """The reply to a request with wrong headers, with the body's id: its publisher may know it by that alone."""
        is_too_long = value is not None and len(value) > self._wire.max_request_bytes
        most = self._wire.max_json_bytes
        return envelope.reply if is_too_long else _named(envelope.reply, readable_id(value, envelope, most))

    def _request(self, record: Record, envelope: Envelope, body: Body, reply: Reply) -> Request:
        question = body.question()
        if question.sequence is not None and self._has_state:
            raise sequence_refused(question.sequence)
        signature = self._by_name.get(question.model_name or "", self._first)  # the first refuses names not its own
        judged = judge(signature, question)
        reply = reply_to(signature, question, envelope, reply)
        size = len(record.value or b"") + len(record.key or b"") + envelope.size + memory(judged)
        rows, shapes, tensors = judged
        key, timeout, state = signature.key, envelope.timeout, envelope.state
        return Request(record, rows, tensors, shapes, reply, size, key, timeout=timeout, state=state)

    def _is_skipped(self, record: Record) -> bool:
        return self._wire.null_value == "skip" and record.value is None and record.unreadable is None


class SingleCodecs(Codecs):
    """Codecs for records that may not travel as one, because each key has an order of its own.

    A plain row then takes 5.3 µs of the loop, without the clients, and 1.0 µs in a run of 64 (measured 2026).
    """

    def decode_all(self, records: Sequence[Record]) -> Sequence[Request | Rejection]:
        return [self.decode(record) for record in records]


def have_equal_headers(records: Sequence[Record]) -> bool:
    """True if all these records have equal headers, so that they need be read only once."""
    headers = [record.headers for record in records]
    return headers.count(headers[0]) == len(headers)


def _end_of_alike(records: Sequence[Record], start: int, head: bytes) -> int:
    """The end of the records from `start` on that have equal headers, length and head."""
    headers, size = records[start].headers, len(records[start].value or b"")
    for at in range(start + 1, len(records)):
        record = records[at]
        value = record.value
        if not value or len(value) != size or not value.startswith(head) or record.headers != headers:
            return at
    return len(records)


def is_answered_by_bytes(reply: Reply) -> bool:
    """True if an answer in this form ends in the bytes of its only output."""
    return reply.content_type != JSON and all(output.binary for output in reply.outputs)


def _explained(no: Reject, record: Record, envelope: Envelope) -> str:
    """The message, and what the value looks like if it cannot be read."""
    is_read = (
        record.value and no.code is Code.INVALID_ARGUMENT and (envelope.fault is None or not envelope.content_type)
    )
    if not is_read or not record.value:
        return no.message
    words, has_type = (
        looks_like(record.value, envelope.content_type),
        CONTENT_TYPE in {n.lower() for n, _ in record.headers},
    )
    message = no.message if words is None else f"{no.message}; it looks like {words}"
    if has_type or record.value[:1] == b"{":
        return message
    return f"{message}; without the header {CONTENT_TYPE} it is read as {envelope.content_type}"


def parse(value: bytes, envelope: Envelope, most_bytes: int) -> Body:
    """Parse the value as its headers say. Raises `Reject` if it is something else, or has too many bytes to parse."""
    if envelope.content_type == PROTOBUF:
        from worker.codecs.encodings.oip_protobuf import ProtobufBody  # noqa: PLC0415  # see its docstring

        return ProtobufBody.parse(value, most_bytes)
    return JsonBody.parse(value, envelope.head_length, most_bytes)


def readable_id(value: bytes | None, envelope: Envelope, most_bytes: int = sys.maxsize) -> str | None:
    """The body's id if the headers say how to read the body, whatever else is wrong with them; None without an id."""
    if not value or not envelope.content_type or envelope.rows is not None:
        return None
    try:
        return parse(value, envelope, most_bytes).body_id
    except Reject:
        return None


def _named(reply: Reply, body_id: str | None) -> Reply:
    """The reply with the body's id; the header `request-id` takes precedence over it."""
    if body_id is None:
        return reply
    return reply._replace(body_id=body_id, request_id=reply.request_id or body_id or None)
