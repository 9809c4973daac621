"""Records that the serializers of others wrote, in Go, Node.js and Java, each with the schema that it registered.

`tests/golden/records` has them: a file for each serializer, with its name and version (`written_by`), the schemas as a
registry gave them, and three records with the fields that are read, or the refusal.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from worker.codecs.encodings.oip import Fault
from worker.codecs.records.framed_values import FramedValues
from worker.core.records import Partition, Record
from worker.core.schemas import NamedReference, RegisteredSchema, SchemaName, UnknownSchema
from worker.registry.proto_compiler import ProtoCompiler

FOLDER = Path(__file__).parents[2] / "golden" / "records"
TP = Partition("payments", 0)
FILES = sorted(FOLDER.glob("*.json"))


class Here:
    """The schemas of a file, as the worker has them (`ports.Schemas`)."""

    trouble = away_since = None

    def __init__(self, given: dict[str, Any]) -> None:
        compiler = ProtoCompiler()
        self._schemas = {
            int(number): compiler.compiled(_registered(int(number), each), 60) for number, each in given.items()
        }
        compiler.close()

    def get(self, name: SchemaName) -> RegisteredSchema | UnknownSchema | None:
        assert isinstance(name, int)
        return self._schemas[name]


def _registered(number: int, given: dict[str, Any]) -> RegisteredSchema:
    references = tuple([NamedReference(each["name"], each["schema"]) for each in given["references"]])
    return RegisteredSchema(number, None, given["type"], given["schema"], references)


def readings(golden: dict[str, Any]) -> list[Any]:
    """The fields of each record, as JSON has them, or why it is refused."""
    values = FramedValues(Here(golden["schemas"]), None)
    records = [
        Record(TP, at, None, base64.b64decode(each["value"]), (), None) for at, each in enumerate(golden["records"])
    ]
    faults: dict[int, Fault] = {}
    assert values.waiting(records) is None
    objects = values.objects(records, faults)
    return [
        faults[at].message if at in faults else json.loads(json.dumps(_plain(fields), default=str))
        for at, fields in enumerate(objects)
    ]


def _plain(fields: Any) -> Any:
    return json.loads(bytes(fields)) if isinstance(fields, memoryview) else fields


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_a_serializer_of_others_writes_is_read(file: Path) -> None:
    """Every field, with all its digits."""
    golden = json.loads(file.read_text(encoding="utf-8"))

    assert readings(golden) == [record["fields"] for record in golden["records"]]
    assert len(golden["records"]) == 3
