"""The table of the encodings: which object reads the values under which headers. No other place decides that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from worker.codecs.encodings.binary_data import BinaryData
from worker.codecs.encodings.oip import Encoding, Judge
from worker.codecs.encodings.oip_json import Json
from worker.codecs.encodings.raw_tensor import PlainRows
from worker.codecs.records.record_encoding import RecordEncoding
from worker.codecs.request_headers import HeaderForm
from worker.codecs.wire_contract import JSON, OCTETS, PROTOBUF, Wire
from worker.core.chunk import Waiting
from worker.core.failures import Reject
from worker.core.records import Record
from worker.core.tensors.signature import Signature


class Encodings:
    """The encodings of some models' requests. Each is made when its first request comes."""

    def __init__(self, signatures: Sequence[Signature], wire: Wire) -> None:
        self._records: RecordEncoding | None = None
        if wire.records is not None:
            keeps_order = wire.has_state
            self._records = RecordEncoding(
                signatures[0], wire.records, wire.max_json_bytes, wire.framed, keeps_order=keeps_order
            )
        judge = Judge(signatures, has_state=wire.has_state)
        binary_data = partial(BinaryData, judge, wire.max_json_bytes)
        # By content type, and whether the value begins with a head.
        self._makers: Mapping[tuple[str, bool], Callable[[], Encoding[Any]]] = {
            (JSON, False): partial(Json, judge, wire.max_json_bytes),
            (JSON, True): binary_data,
            (OCTETS, False): partial(PlainRows, judge, must_state=wire.must_state_rows),
            (OCTETS, True): binary_data,
            (PROTOBUF, False): partial(_protobuf, judge, wire.max_json_bytes),
            (PROTOBUF, True): partial(_protobuf, judge, wire.max_json_bytes),
        }
        self._made: dict[tuple[str, bool], Encoding[Any]] = {}

    def of(self, form: HeaderForm) -> Encoding[Any] | RecordEncoding:
        """The encoding of values under these headers, which have no fault in their content type."""
        if self._records is not None:
            return self._records
        key = form.content_type, form.head_length is not None
        if key not in self._made:
            self._made[key] = self._makers[key]()
        return self._made[key]

    def waiting(self, records: Sequence[Record]) -> Waiting | None:
        """The first of these records whose schema is not here yet; None: all can be read."""
        return None if self._records is None else self._records.waiting(records)

    def body_id(self, form: HeaderForm, value: bytes | None) -> str | None:
        """The body's id, if the headers say how to read it, whatever else is wrong with them; None without an id."""
        if not value or not form.content_type:
            return None
        try:
            return self.of(form).body_id(form, value)
        except Reject:
            return None


def without_a_model() -> Encodings:
    """The encodings for a tool that reads only ids."""
    return Encodings([Signature("", "", (), ())], Wire("", "", max_json_bytes=sys.maxsize))


def _protobuf(judge: Judge, most_bytes: int) -> Encoding[Any]:
    from worker.codecs.encodings.oip_protobuf import Protobuf  # noqa: PLC0415  # see its docstring

    return Protobuf(judge, most_bytes)
