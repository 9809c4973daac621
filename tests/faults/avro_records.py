"""Requests that are records in Avro, whose schemas change in mid-stream, and answers in Avro; written without `worker`.

Owns what it knows of the registry.
"""

from __future__ import annotations

import io
import json
import time
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import fastavro

from tests.faults.records import FED_BY_ROWS, rows_of
from tests.faults.requests import ANSWERS_NAN, MODEL_FAILS, Form, Poison, Rows, rows

SCHEMAS = 64
RECORDS_OF_A_SCHEMA = 500  # then the next one's come
REGISTRY_WITHIN = 120.0  # seconds


class AvroRecords:
    """Writes records by schemas that follow one another, and reads answers. Owns what it knows of the registry."""

    def __init__(self, registry: str, requests: Sequence[str], answers: str) -> None:
        """Registers the schemas of these topics of requests; the registry must be there."""
        self._registry = registry
        self._answers = f"{answers}-value"
        schemas = [_schema(version) for version in range(SCHEMAS)]
        for topic in requests:
            self._schemas = [(_registered(registry, f"{topic}-value", schema), schema) for schema in schemas]

    @property
    def form(self) -> Form:
        """The form of these requests and answers."""
        right, fails, nan = (self.written(0, given) for given in (rows(0), MODEL_FAILS, ANSWERS_NAN))
        return Form(
            None,
            self.written,
            (
                Poison(None, right[:-1], "INVALID_ARGUMENT"),
                Poison(None, right + b"\0", "INVALID_ARGUMENT"),
                Poison(None, b"\7" + right[1:], "INVALID_ARGUMENT"),
                Poison(None, b"\0" + (1 << 30).to_bytes(4, "big") + right[5:], "INVALID_ARGUMENT"),
                Poison(None, None, "INVALID_ARGUMENT"),
                Poison(None, self.written(0, rows(0)[:, 1:]), "INVALID_ARGUMENT"),
                Poison(None, fails, "INVALID_ARGUMENT"),
                Poison(None, nan, "INTERNAL"),
            ),
            "application/vnd.confluent.avro",
            self.raw,
            {**FED_BY_ROWS, "RECORDS__ENCODING": "registry", "REGISTRY__URL": self._registry},
            passed_over=self.written(0, rows(0), kind="other"),
        )

    def written(self, number: int, given: Rows, kind: str = "asked") -> bytes:
        """The framed record of this number, with these rows."""
        schema_id, schema = self._schemas[number // RECORDS_OF_A_SCHEMA % SCHEMAS]
        record = {"kind": kind, "id": number, "rows": [{"x": row} for row in given.tolist()]}
        return _framed(schema_id, schema, record)

    def raw(self, number: int, answer: bytes) -> bytes:
        """The answer's rows. Raises `ValueError` if it does not have the one schema of answers."""
        schema_id, schema = self._of_answers
        if answer[:5] != b"\0" + schema_id.to_bytes(4, "big"):
            raise ValueError(f"it begins with {answer[:5]!r}, and the schema of answers is {schema_id}")
        fields: Any = fastavro.schemaless_reader(io.BytesIO(answer[5:]), schema, None)
        if (error := fields.pop("error")) is not None:
            raise ValueError(f"an answer with the error {error!r}")
        return rows_of(fields, number)

    @cached_property
    def _of_answers(self) -> tuple[int, Any]:
        """The id and the schema of answers: the first replica has registered it. Waits for a registry that is away."""
        give_up = time.monotonic() + REGISTRY_WITHIN
        while True:
            try:
                found = _asked(f"{self._registry}/subjects/{self._answers}/versions/latest")
            except OSError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.1)
            else:
                return found["id"], fastavro.parse_schema(json.loads(found["schema"]))


def _schema(version: int) -> Any:
    row = {"type": "record", "name": "Row", "fields": [{"name": "x", "type": {"type": "array", "items": "float"}}]}
    fields = [
        {"name": "kind", "type": "string"},
        {"name": "id", "type": "long"},
        {"name": "rows", "type": {"type": "array", "items": row}},
        {"name": f"note_{version}", "type": "string", "default": "not for the model"},
    ]
    # Where the others stand changes, too: only a record's own schema reads it.
    turned: Sequence[object] = fields[version % len(fields) :] + fields[: version % len(fields)]
    return fastavro.parse_schema({"type": "record", "name": "Asked", "fields": turned})


def _framed(schema_id: int, schema: Any, record: Mapping[str, Any]) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, record)
    return b"\0" + schema_id.to_bytes(4, "big") + written.getvalue()


def _registered(registry: str, subject: str, schema: Any) -> int:
    text = json.dumps({name: value for name, value in schema.items() if not name.startswith("__")})
    found: int = _asked(f"{registry}/subjects/{subject}/versions", {"schema": text})["id"]
    return found


def _asked(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/vnd.schemaregistry.v1+json"})  # noqa: S310  # our own
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # our own
        return json.load(answer)
