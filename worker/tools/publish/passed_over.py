"""Tells which records a worker passes over, and so answers with nothing: `publish --wait` waits for the others."""

from __future__ import annotations

from worker.codecs.records.declared_mapping import kinds_of
from worker.codecs.records.mapping import RecordMapping
from worker.codecs.records.projection import from_json
from worker.core.records import Partition, Record
from worker.core.tensors.signature import Signature
from worker.settings.for_commands import ClientSettings
from worker.settings.records_section import RecordsSettings
from worker.tools.publish.requests import Publishable

_OF_NO_MODEL = Signature("", "", (), ())


class PassedOver:
    """Judges records for one topic by the settings: by `[records] only`, and null by `NULL_VALUE`."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        """Raises `BadConfiguration` for kinds that no record can have.

        `is_sure` is False if the kinds are fields of records with a schema, which only a worker reads.
        """
        self._partition = Partition(topic, 0)
        self._skips_null = settings.kafka.null_value == "skip"
        self._mapping: RecordMapping | None = None
        self.is_sure = True
        records = settings.records
        if records is None or not (records.only or records.envelope):
            return
        is_framed = records.encoding == "registry"
        self.is_sure = not is_framed or all(path.is_of_record for path in kinds_of(records.only))
        if self.is_sure:
            kinds = RecordsSettings(only=records.only, envelope=None if is_framed else records.envelope)
            self._mapping = RecordMapping(
                kinds,
                _OF_NO_MODEL,
                from_json if records.encoding == "json" else None,
                skips_null=self._skips_null,
            )

    def has(self, request: Publishable) -> bool:
        """True if a worker with these settings answers this record with nothing."""
        value, key, headers = request
        if not value:
            return value is None and self._skips_null
        if self._mapping is None:
            return False
        record = Record(self._partition, 0, key, value, headers, None)
        return bool(self._mapping.read([value], [record]).passed_over)
