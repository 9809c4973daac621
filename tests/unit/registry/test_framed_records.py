"""A command reads framed records as JSON objects, and waits for their schemas."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from tests.unit.registry.scripted import PAYMENT, ScriptedRegistry, away, schema_page, settings
from worker.core.failures import BadConfiguration
from worker.core.records import Partition, Record
from worker.registry import framed_records
from worker.registry.registry import Registry


def record(body: bytes, schema: int = 7) -> Record:
    return Record(Partition("payments", 0), 0, b"k", b"\0" + schema.to_bytes(4, "big") + body, (), 5)


def avro(amount: float) -> bytes:
    written = io.BytesIO()
    schema: Any = fastavro.parse_schema(json.loads(PAYMENT))
    fastavro.schemaless_writer(written, schema, {"amount": amount})
    return written.getvalue()


@pytest.fixture
def script() -> ScriptedRegistry:
    return ScriptedRegistry({"/schemas/ids/7": schema_page()})


@pytest.fixture
def registry(script: ScriptedRegistry) -> Iterator[Registry]:
    opened = Registry(settings())
    script.attach(opened._client)
    yield opened
    opened.close(10)


def test_records_come_as_json_objects(registry: Registry) -> None:
    """All else of a record stays; one that cannot be read has its reason."""
    good, broken = record(avro(1.5)), record(b"")

    read = framed_records.as_json([good, broken], registry, patience=10)

    assert read[0] == good._replace(value=b'{"amount":1.5}')
    assert read[1].value is None
    assert read[1].unreadable


def test_json_with_a_schema_stays_the_text_that_it_is(registry: Registry, script: ScriptedRegistry) -> None:
    """Its reader judges whether it is JSON."""
    script.pages["/schemas/ids/7"] = schema_page("{}", schemaType="JSON")
    value = b'{"amount": 1.50, "amount": '

    (read,) = framed_records.as_json([record(value)], registry, patience=10)

    assert read.value == value


def test_a_registry_that_is_away_is_told(registry: Registry, script: ScriptedRegistry) -> None:
    """The command does not wait for ever."""
    script.pages["/schemas/ids/7"] = away()

    with pytest.raises(BadConfiguration, match="WORKER_REGISTRY__URL: schema 7 did not come"):
        framed_records.as_json([record(avro(1.5))], registry, patience=0)


def test_the_registry_of_the_settings_is_closed_again(
    monkeypatch: pytest.MonkeyPatch, script: ScriptedRegistry
) -> None:
    """Its thread would keep the command from its end."""
    opened: list[Registry] = []

    def open_registry(given: Any) -> Registry:
        opened.append(Registry(given))
        script.attach(opened[-1]._client)
        return opened[-1]

    monkeypatch.setattr(framed_records, "Registry", open_registry)

    (read,) = framed_records.unframed([record(avro(2.0))], settings())

    assert read.value == b'{"amount":2.0}'
    assert not opened[0].schemas._thread.is_alive()
