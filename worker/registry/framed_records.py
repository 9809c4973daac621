"""Framed records as JSON objects, for a command that looks at a few: it waits for their schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from worker.codecs.encodings.oip import Fault
from worker.codecs.records.framed_values import FramedValues
from worker.core.records import Record
from worker.registry.awaiting import PATIENCE, await_schemas
from worker.registry.registry import Registry
from worker.settings import RegistrySettings

_CLOSING = 1.0  # seconds


def unframed(records: Sequence[Record], settings: RegistrySettings) -> list[Record]:
    """Ask the registry of these settings, and close it again. As `as_json`."""
    registry = Registry(settings)
    try:
        return as_json(records, registry)
    finally:
        registry.close(_CLOSING)


def as_json(records: Sequence[Record], registry: Registry, patience: float = PATIENCE) -> list[Record]:
    """These records, which have values, with a JSON object each: decimals and instants are texts, bytes in base64.

    One that cannot be read is `unreadable`. Raises `BadConfiguration` if schemas are not here after `patience` seconds.
    """
    framed = FramedValues(registry.schemas, None)
    await_schemas(framed, records, patience)
    faults: dict[int, Fault] = {}
    objects = framed.objects(records, faults)
    return [
        record._replace(value=msgspec.json.encode(one, enc_hook=str) if isinstance(one, Mapping) else bytes(one))
        if (fault := faults.get(at)) is None
        else record._replace(value=None, unreadable=fault.message)
        for at, (record, one) in enumerate(zip(records, objects, strict=True))
    ]
