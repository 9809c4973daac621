"""Reads records that are framed JSON. Their schema is not validated against: the mapping judges types.

A mapping reads its fields from the `text`, as of any JSON record; `read` gives all fields.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from worker.codecs.records.avro_schema import called
from worker.codecs.records.framing import Frame
from worker.core.failures import Reject
from worker.core.schemas import RegisteredSchema

_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class JsonRecords:
    """Reads records of one schema. Pure."""

    def __init__(self, schema: RegisteredSchema, wanted: Collection[tuple[str, ...]] | None) -> None:  # noqa: ARG002  # as Avro's and Protobuf's
        self._name = called(schema)

    @staticmethod
    def text(value: bytes, frame: Frame) -> memoryview:
        """The JSON text in a value. It may be anything."""
        return memoryview(value)[frame.start :]

    def read(self, value: bytes, frame: Frame) -> dict[str, Any]:
        """All fields of a record by name. Raises `Reject`."""
        try:
            return _decode(self.text(value, frame))
        except _ERRORS:
            raise Reject(f"the record: expected a JSON object (JSON Schema, {self._name})") from None
