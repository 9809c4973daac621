"""The parts that read whole records whose schema is in a registry, and answer them with JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from worker.assembled_records import RecordParts, forms_of, record_mapping
from worker.codecs.encodings.oip import Fault
from worker.codecs.records.framed_values import FramedValues
from worker.codecs.records.projection import Given
from worker.core.chunk import Waiting
from worker.core.records import Record
from worker.core.tensors.signature import Signature
from worker.registry.registry import Registry
from worker.settings.for_commands import ScoringSettings, load_client, unset

_CLOSING = 1.0  # seconds


def framed_parts(
    config: Path | None, settings: ScoringSettings, closing: ExitStack, signature: Signature
) -> RecordParts:
    """The parts; `closing` closes the registry's client. Raises `BadConfiguration`."""
    registry = load_client(config, os.environ).registry
    if registry is None:
        raise unset("WORKER_REGISTRY__URL: must be set: it says where the records' schemas are", config)
    mapping = record_mapping(settings, signature, skips_null=settings.kafka.null_value == "skip")
    assert mapping is not None
    client = Registry(registry)
    closing.callback(client.close, _CLOSING)
    return RecordParts(forms_of(mapping), mapping, _FramedOrJson(client.schemas, mapping.wanted))


class _FramedOrJson(FramedValues):
    """Framed values, and objects of JSON among them: as `consume` shows the values of such a topic."""

    def waiting(self, records: Sequence[Record]) -> Waiting | None:
        framed = [at for at, record in enumerate(records) if not _is_json(record)]
        waiting = super().waiting([records[at] for at in framed])
        return None if waiting is None else waiting._replace(at=framed[waiting.at])

    def objects(self, records: Sequence[Record], faults: dict[int, Fault]) -> list[Given]:
        objects: list[Given] = [record.value or b"" for record in records]
        if not (framed := [at for at, record in enumerate(records) if not _is_json(record)]):
            return objects
        own = {place: faults[at] for place, at in enumerate(framed) if at in faults}
        for at, read in zip(framed, super().objects([records[at] for at in framed], own), strict=True):
            objects[at] = read
        faults.update({framed[place]: fault for place, fault in own.items()})
        return objects


def _is_json(record: Record) -> bool:
    return (record.value or b"")[:1] == b"{"
