"""Tensors as bytes: rows of the only input that a model requires, and the binary-data form that any model understands.

    rows          row · row · row …                               content-type: application/octet-stream
    binary-data   {"inputs": [...]} · tensor · tensor …           the same, with Inference-Header-Content-Length
                  ╰─ JSON head, so long ─╯

Numbers are little-endian and row-major, and are never parsed one by one: rows are the record's value itself, tensors of
the binary-data form are views of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

from worker.codecs.encodings.elements import check_booleans
from worker.codecs.encodings.oip import check_inline, memory
from worker.codecs.request_headers import Envelope
from worker.codecs.wire_contract import HEAD_LENGTH, JSON, OCTETS
from worker.core.failures import Reject
from worker.core.records import Record, Reply, Request, Tensor
from worker.core.runs import Run, run_of
from worker.core.tensors.signature import Judged, Signature
from worker.core.tensors.specs import NamedTensor


class Rows:
    """Rows of the only input required in, rows of the only output out. Knows one model."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._model = signature.key
        spec = signature.raw_input
        self._shapes: tuple[tuple[int, ...], ...] = (tuple(d for d in spec.dims if d is not None),) if spec else ()
        self._row_bytes = spec.row_bytes if spec else None
        self._boolean = spec if spec and spec.datatype == "BOOL" else None
        # What rows cannot say, several outputs or strings, the binary-data form can.
        is_plain = len(signature.outputs) == 1 and not signature.outputs[0].is_text
        self._binary = () if is_plain else tuple(wanted._replace(binary=True) for wanted in signature.all_inline)
        self._is_whole = len(signature.inputs) == 1  # a model with rows and nothing else to take
        # Whether rows are answered by rows, and need no look of their own.
        self.may_run = spec is not None and is_plain and self._boolean is None and self._is_whole

    def request(self, record: Record, value: bytes, envelope: Envelope) -> Request:
        """The record's value as so many rows. Raises `Reject` when it is no whole number of them."""
        rows = self._signature.raw_rows(len(value))
        if self._boolean is not None:
            check_booleans(self._boolean, value)
        shapes, size = self._shapes, len(value)
        tensors: tuple[Tensor, ...] = (value,)
        if not self._is_whole:
            _, shapes, tensors = judged = self._completed(rows, value)
            size = memory(judged)
        size += len(record.key or b"") + envelope.size
        reply, timeout, state = self._reply(envelope.reply), envelope.timeout, envelope.state
        return Request(record, rows, tensors, shapes, reply, size, self._model, timeout=timeout, state=state)

    def _completed(self, rows: int, value: bytes) -> Judged:
        """The rows, and what a model's other inputs hold, which have defaults."""
        (spec,), (dims,) = self._signature.required, self._shapes
        return self._signature.judge([NamedTensor(spec.name, spec.datatype, (rows, *dims), value)])

    def may_begin(self, length: int, envelope: Envelope) -> bool:
        """Whether a value of so many bytes may be the first of a run."""
        is_plain = envelope.is_rows and envelope.fault is None and envelope.reply.content_type == OCTETS
        return is_plain and length > 0 and self._row_bytes is not None and length % self._row_bytes == 0

    def run(self, records: Sequence[Record], values: Sequence[bytes], envelopes: Sequence[Envelope]) -> Run | None:
        """All of these, whose values are equally long, as one; None when they are no rows that are answered by rows.

        `envelopes` holds one for each record, or a single one for all of them.
        """
        length = len(values[0])
        try:
            rows = self._signature.raw_rows(length)
        except Reject:
            return None
        # All fields at once, each with those of its kind: half the time that asking each envelope takes.
        _, are_rows, replies, _, _, sizes_of_headers, faults, timeouts, states = zip(*envelopes, strict=True)
        if not all(are_rows) or any(faults) or any([reply.content_type != OCTETS for reply in replies]):  # noqa: C419
            return None
        if any(states):
            return None
        around = [length + size for size in sizes_of_headers]
        if len(envelopes) < len(records):
            replies, around, timeouts = replies * len(records), around * len(records), timeouts * len(records)
        keys = [record.key or b"" for record in records]
        sizes = list(map(add, map(len, keys), around))
        return run_of(
            records, values, rows, self._shapes, replies, sizes, self._model, timeouts if any(timeouts) else ()
        )

    def _reply(self, reply: Reply) -> Reply:
        """All outputs, as rows again if that can be. Raises `Reject` when they have no form in the type accepted."""
        if reply.content_type == OCTETS:
            return reply._replace(outputs=self._binary) if self._binary else reply
        if reply.content_type == JSON:
            check_inline(self._signature, self._signature.all_inline)
        return reply


def split(value: bytes, head_length: int) -> tuple[memoryview, memoryview]:
    """The JSON head and the tensors behind it. Raises `Reject` when the value is shorter than its head."""
    if head_length > len(value):
        raise Reject(f"{HEAD_LENGTH}: {head_length} bytes announced, the value has {len(value)}")
    view = memoryview(value)
    return view[:head_length], view[head_length:]
