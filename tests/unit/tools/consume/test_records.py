"""Values of topics of records as JSON: as they are, and by the schema that they name."""

from __future__ import annotations

import json
from datetime import date

import pytest

from tests.payments import SCHEMA, as_avro, payments
from tests.unit.codecs.builders import record
from tests.unit.registry.scripted import ScriptedRegistry, away, schema_page, settings
from worker.core.records import Record
from worker.tools.consume.command import _reading_of
from worker.tools.consume.records import RecordValues
from worker.tools.consume.shown import json_of, lines_of

OK, ERROR = ("status", b"ok"), ("status", b"error")
AVRO = ("content-type", b"application/vnd.confluent.avro")
ANSWER = b'{"id":17,"score":0.930,"label":"fraud"}'
PAYMENT = payments(1)[0]


def values(registry: ScriptedRegistry) -> RecordValues:
    """The reader of records that asks this registry."""
    found = RecordValues(settings())
    found._client = registry.client()
    return found


def shown(value: Record, *, is_of_records: bool = False) -> tuple[list[str], dict[str, object]]:
    """The lines for people, and the document for machines, as `consume` writes them without a model."""
    reading = _reading_of(RecordValues(None), lambda: None, is_of_records=is_of_records)(value)
    return list(lines_of(value, reading, 80, date(2026, 11, 21))), json.loads(json_of(value, reading))


def test_an_answer_in_json_is_shown_as_it_is() -> None:
    """People see its text, digits and all; a program gets it as an object."""
    lines, document = shown(record(ANSWER, OK))

    assert lines[1] == f"    {ANSWER.decode()}"
    assert document["record"] == {"id": 17, "score": 0.93, "label": "fraud"}
    assert "value" not in document


def test_a_long_answer_is_shown_to_its_end() -> None:
    """With `keep = "all"` the answer's fields stand behind those of the record."""
    value = json.dumps({"note": "x" * 500, "score": 1}).encode()

    lines, _ = shown(record(value, OK))

    assert lines[1].endswith('"score": 1}')


def test_a_record_whose_fields_are_those_of_a_request_is_a_record() -> None:
    """The settings say that the topic has records; without them it is read as a request's answer."""
    value = record(b'{"outputs":[],"error":"none"}', OK)

    assert shown(value, is_of_records=True)[1]["record"] == {"outputs": [], "error": "none"}
    assert shown(value)[1]["error"] == "none"


def test_a_record_of_several_lines_is_one() -> None:
    """A publisher may indent its JSON, and an answer may repeat that."""
    assert RecordValues(None).read(record(b'{"id":\n 17}', OK)) == {"record": b'{"id":17}'}


@pytest.mark.parametrize("value", [b"{", b"[1]", b"text", b"", b"\xff"])
def test_another_value_is_no_record(value: bytes) -> None:
    """It is shown as text or bytes, as before."""
    assert RecordValues(None).read(record(value, OK)) == {}


def test_a_value_with_a_schema_is_shown_as_json() -> None:
    """The registry is asked once for its schema. An error is shown as the message in it."""
    registry = ScriptedRegistry({"/schemas/ids/7": schema_page(json.dumps(SCHEMA))})
    reader = values(registry)

    found = [reader.read(record(as_avro(PAYMENT, 7))) for _ in range(2)]

    assert found[0] == found[1]
    assert json.loads(found[0]["record"])["customer"] == PAYMENT["customer"]
    assert registry.paths == ["/schemas/ids/7"]


def test_an_error_with_a_schema_is_shown_as_its_message() -> None:
    """As an error in JSON is."""
    text = '{"type": "record", "name": "Answer", "fields": [{"name": "error", "type": "string"}]}'
    reader = values(ScriptedRegistry({"/schemas/ids/7": schema_page(text)}))

    assert reader.read(record(b"\0\0\0\0\7\6bad", ERROR, AVRO)) == {"error": "bad"}


@pytest.mark.parametrize(
    ("pages", "value", "told"),
    [
        ({"/schemas/ids/7": away()}, as_avro(PAYMENT, 7), "the schema 7 are shown as bytes: ConnectError"),
        ({"/schemas/ids/7": schema_page(json.dumps(SCHEMA))}, as_avro(PAYMENT, 7)[:-1], ""),
        ({}, b"\0\1", ""),
    ],
)
def test_a_value_that_its_schema_does_not_read_is_bytes(
    pages: dict[str, Exception], value: bytes, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A registry that is away is told once."""
    reader = values(ScriptedRegistry(pages))

    assert [reader.read(record(value)) for _ in range(2)] == [{}, {}]
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == bool(told)


def test_without_a_registry_the_settings_that_lack_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, and only for an answer that says that it has a schema."""
    reader = RecordValues(None)

    assert [reader.read(record(b"\0\0\0\0\7x", OK, *more)) for more in ([AVRO], [AVRO], [])] == [{}] * 3
    assert capsys.readouterr().err.count("[registry]") == 1
