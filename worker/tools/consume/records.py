"""Reads the values of topics of records as JSON: an object of JSON as it is, and others by the schema that they name.

The registry is asked once for each schema. A value that cannot be read so is left to be shown as text or bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from worker.codecs.records.answers import lines
from worker.codecs.records.framing import SCHEMA_HEADER, Frame, frame_of
from worker.codecs.records.readers import RecordReader, RecordReaders
from worker.core.failures import Reject
from worker.core.records import Record
from worker.core.schemas import SchemaName
from worker.settings import RegistrySettings
from worker.terminal.terminal import tell
from worker.tools.closing import Closing
from worker.tools.consume.reading import Reading, headers_of

if TYPE_CHECKING:
    from worker.registry.client import RegistryClient

_FRAMED = b"application/vnd.confluent"  # the content types of answers with a schema begin so
_UNFIT = (Reject, TypeError, ValueError, LookupError, RecursionError)


class RecordValues(Closing):
    """Reads values as records. Owns the registry's client, which the first value with a schema makes."""

    def __init__(self, registry: RegistrySettings | None) -> None:
        self._registry = registry
        self._client: RegistryClient | None = None
        self._readers = RecordReaders(None)
        self._found: dict[SchemaName, RecordReader | None] = {}
        self._has_told = False

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def read(self, record: Record) -> Reading:
        """The value as `record`, or the `error` in it; empty if it is neither. Raises `BadConfiguration`."""
        headers, value = headers_of(record.headers), record.value or b""
        try:
            if value[:1] == b"{":
                document = orjson.loads(value)
                text = orjson.dumps(document) if b"\n" in value or b"\r" in value else value
            elif self._may_be_framed(headers.get("content-type", b"")):
                frame = frame_of(value, headers.get(SCHEMA_HEADER))
                if (reader := self._reader(frame)) is None:
                    return {}
                document = reader.read(value, frame)
                (text,) = lines([document])
            else:
                return {}
        except _UNFIT:
            return {}
        if headers.get("status") == b"error" and isinstance(document.get("error"), str):
            return {"error": document["error"]}
        return {"record": text}

    def _may_be_framed(self, content_type: bytes) -> bool:
        is_said = content_type.startswith(_FRAMED)
        if is_said and self._registry is None and not self._has_told:
            self._has_told = True
            tell("some values are written with a schema of a registry; the settings of [registry] show them as records")
        return self._registry is not None

    def _reader(self, frame: Frame) -> RecordReader | None:
        """The reader of the values with this schema; None if the registry does not give it, which is told once."""
        if frame.schema not in self._found:
            self._found[frame.schema] = self._asked(frame.schema)
        return self._found[frame.schema]

    def _asked(self, name: SchemaName) -> RecordReader | None:
        from worker.registry.client import RegistryClient  # noqa: PLC0415  # an extra
        from worker.registry.verdicts import NotInRegistry, RegistryAway  # noqa: PLC0415

        assert self._registry is not None
        self._client = self._client or RegistryClient(self._registry)
        try:
            return self._readers.of(self._client.schema(name))
        except (NotInRegistry, RegistryAway, Reject) as no:
            tell(f"values with the schema {name} are shown as bytes: {no}")
            return None
