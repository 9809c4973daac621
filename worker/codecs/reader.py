"""Reads records, many at a time, into chunks. A bad record gives a `Rejection`, never an exception.

    records ─▶ headers ─▶ by form: one `Encoding` for each ─┬▶ good ones by kind ─▶ Chunk, one for each kind
                                                            └▶ faults by index ─▶ Rejection

Pure: owns the models' signatures, the deployment's choices, and the headers and statements that are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from worker.codecs.dead_letters import UNREADABLE
from worker.codecs.encodings.oip import Fault, Part, grouped
from worker.codecs.encodings.table import Encodings
from worker.codecs.looks_like import looks_like
from worker.codecs.replies import ReplyTopics
from worker.codecs.request_headers import CONTENT_TYPE, Envelope, EnvelopeColumns, Envelopes, HeaderForm
from worker.codecs.wire_contract import RECORD, Wire
from worker.core.chunk import Chunk, Reading
from worker.core.failures import Code
from worker.core.records import NO_IDS, Ids, Record, Rejection
from worker.core.tensors.signature import Signature


class RequestReader:
    """The wire contract for some models, on the way in."""

    def __init__(self, signatures: Sequence[Signature], wire: Wire) -> None:
        """A request that names no model, or no version, means the first signature."""
        self._wire = wire
        self._has_state = wire.has_state
        self._envelopes = Envelopes(
            wire.default_content_type if wire.records is None else RECORD,
            wire.default_timeout,
            reads_state=wire.has_state,
            reply_topics=ReplyTopics(wire.response_topic, wire.reply_topics, wire.shut),
        )
        self._encodings = Encodings(signatures, wire)

    def read(self, records: Sequence[Record]) -> Reading:
        """Read records, in order, at least one: their chunks, and the rejections of others by index.

        A chunk has all records of its kind in one encoding. Where the model has state it has only neighbours, so that
        order holds.
        """
        waiting = self._encodings.waiting(records)
        if waiting is not None:
            records = records[: waiting.at]
            if not records:
                return Reading((), (), waiting)
        envelopes = self._envelopes.read_all([record[4] for record in records])
        values = [record[3] for record in records]
        wrong = self._unfit(records, values, envelopes)
        fit = [at for at in range(len(records)) if at not in wrong] if wrong else range(len(records))
        chunks: list[Chunk] = []
        for at in self._by_encoding(fit, envelopes.forms):
            forms, some = envelopes.forms, values
            if len(at) < len(values):
                forms, some = [forms[index] for index in at], [values[index] for index in at]
            own = records if len(at) == len(records) else [records[index] for index in at]
            parts, faults = self._encodings.of(forms[0]).read(forms, some, own)  # type: ignore[arg-type]  # fit ones are no None
            for index, fault in faults:
                wrong[at[index]] = fault
            chunks += [_chunk(part, at, records, some, envelopes) for part in parts]
        if not wrong:
            return Reading(chunks, [], waiting)
        rejections = [(at, self._rejected(records[at], envelopes.of(at), wrong[at])) for at in sorted(wrong)]
        return Reading(chunks, rejections, waiting)

    def _unfit(
        self, records: Sequence[Record], values: Sequence[bytes | None], envelopes: EnvelopeColumns
    ) -> dict[int, Fault]:
        """The records whose values may not be read. It takes 0.1 µs for each if there are none."""
        if envelopes.faults is None and all(values) and max(map(len, values)) <= self._wire.max_request_bytes:  # type: ignore[arg-type]  # no None
            keys = [record[2] for record in records] if self._has_state else None
            if keys is None or (None not in keys and max(map(len, keys)) <= self._wire.max_key_bytes):  # type: ignore[arg-type]  # no None
                return {}
        found = [(at, self._refusal_of(record, envelopes.of(at))) for at, record in enumerate(records)]
        return {at: fault for at, fault in found if fault is not None}

    def _by_encoding(self, at: Sequence[int], forms: Sequence[HeaderForm]) -> Iterable[Sequence[int]]:
        """The records of each encoding."""
        if not at or forms.count(forms[0]) == len(forms):
            return [at] if at else []
        return grouped(at, [self._encodings.of(forms[index]) for index in at], keeps_order=self._has_state)

    # One record

    def description(self, record: Record) -> str | None:
        """The look of a record that is no request, in words; None if it looks like nothing known."""
        form = self._envelopes.read(record.headers).form
        return looks_like(record.value, form.content_type) if record.value and self._wire.framed is None else None

    def _rejected(self, record: Record, envelope: Envelope, fault: Fault) -> Rejection:
        code, message, body_id, is_silent = fault
        if self._wire.null_value == "skip" and record.value is None and record.unreadable is None:
            is_silent = True
        if self._wire.framed is None:  # else a value's frame says what it is
            message = _explained(code, message, record, envelope)
        return Rejection(record, code, message, envelope.form.reply, _named(envelope.ids, body_id), is_silent)

    def _refusal_of(self, record: Record, envelope: Envelope) -> Fault | None:
        """The reason why the value may not be read; None if it may.

        If the headers are wrong, its publisher may know it by the body's id alone.
        """
        value, key, most = record.value, record.key, self._wire.max_request_bytes
        code, body_id = Code.INVALID_ARGUMENT, None
        if record.unreadable is not None:
            why = f"{UNREADABLE}: {record.unreadable}"
        elif envelope.fault is not None:
            why = envelope.fault
            if value is not None and len(value) <= most:
                body_id = self._encodings.body_id(envelope.form, value)
        elif not value:
            what = "request" if self._wire.records is None else "record"
            why = f"expected a {what}, got {'an empty' if value is not None else 'a null'} value"
        elif len(value) > most:
            code = Code.RESOURCE_EXHAUSTED
            why = f"the value has {len(value)} bytes, at most {most} are taken"
        elif self._has_state and (fault := self._fault_of_key(key)) is not None:
            return self._silence(record, envelope) or fault
        else:
            return None
        return Fault(code, why, body_id)

    def _fault_of_key(self, key: bytes | None) -> Fault | None:
        """The reason why there can be no state of this key."""
        if key is None:
            return Fault(Code.INVALID_ARGUMENT, "expected a key: the model remembers something of each key", None)
        if len(key) <= (most := self._wire.max_key_bytes):
            return None
        why = f"the key has {len(key)} bytes, at most {most} fit into the changelog beside a state"
        return Fault(Code.RESOURCE_EXHAUSTED, why, None)

    def _silence(self, record: Record, envelope: Envelope) -> Fault | None:
        """The fault of a record of another kind, which needs no key; None if it is not one, as no request is."""
        if self._wire.records is None:
            return None
        _, faults = self._encodings.of(envelope.form).read([envelope.form], [record.value or b""], [record])
        return next((fault for _, fault in faults if fault.is_silent), None)


def _chunk(
    part: Part, at: Sequence[int], records: Sequence[Record], values: Sequence[bytes | None], envelopes: EnvelopeColumns
) -> Chunk:
    """The chunk of a part of the records at these indexes, which have these values."""
    (model, form, state), own, statements, tensors, body_ids, kept, keys = part
    _, ids, timeouts, header_sizes, _ = envelopes
    count, first = len(own), statements[0]
    if count < len(records):
        if count < len(at):
            at, values = [at[index] for index in own], [values[index] for index in own]
        records, header_sizes = [records[index] for index in at], [header_sizes[index] for index in at]
        ids, timeouts = ids and [ids[index] for index in at], timeouts and [timeouts[index] for index in at]
    if statements.count(first) == count:
        rows, shapes, memory = [first.rows] * count, [first.shapes] * count, first.memory
        sizes = [
            len(value) + len(record[2] or b"") + size + memory  # type: ignore[arg-type]  # it is no None
            for value, record, size in zip(values, records, header_sizes, strict=True)
        ]
    else:
        rows, shapes = [each.rows for each in statements], [each.shapes for each in statements]
        sizes = [
            len(value) + len(record[2] or b"") + size + each.memory  # type: ignore[arg-type]  # it is no None
            for value, record, size, each in zip(values, records, header_sizes, statements, strict=True)
        ]
    if body_ids:
        ids = list(map(_named, ids or repeat(NO_IDS), body_ids))
    if ids and ids.count(NO_IDS) == count:
        ids = None
    if timeouts and timeouts.count(None) == count:
        timeouts = None
    return Chunk(
        model, form, records, rows, shapes, tensors, sizes, at, ids, timeouts, state, kept=kept, answer_keys=keys
    )


def _named(ids: Ids, body_id: str | None) -> Ids:
    """The ids with the body's; the header `request-id` takes precedence over it."""
    if body_id is None:
        return ids
    return tuple.__new__(Ids, (ids.request_id or body_id or None, body_id, ids.echo))


def _explained(code: Code, message: str, record: Record, envelope: Envelope) -> str:
    """The message, and what the value looks like if it cannot be read."""
    content_type = envelope.form.content_type
    is_read = code is Code.INVALID_ARGUMENT and (envelope.fault is None or not content_type)
    if not is_read or not record.value:
        return message
    words = looks_like(record.value, content_type)
    message = message if words is None else f"{message}; it looks like {words}"
    if (
        content_type == RECORD
        or CONTENT_TYPE in {name.lower() for name, _ in record.headers}
        or record.value[:1] == b"{"
    ):
        return message
    return f"{message}; without the header {CONTENT_TYPE} it is read as {content_type}"
