"""Our code reads and writes the golden exchanges in `schemas/examples`, and the JSON Schemas accept them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from tests.contract.exchanges import (
    ERRORS,
    EXCHANGES,
    RESULTS,
    SCHEMAS,
    Side,
    answer,
    arrays,
    chunk_of,
    codec,
    record,
    side,
    signature,
    text_of,
)
from worker.core.records import ClosedBy, Fields
from worker.core.tensors.stacking import Stacker


def expect(message: Fields, golden: Side) -> None:
    """Fail the test unless the message equals the golden record: JSON as a document, all else byte by byte."""
    _, key, value, *_ = message
    assert text_of(message) == golden.headers
    assert key == b"user-7"
    if golden.headers["content-type"] == "application/json":
        assert json.loads(value or b"") == json.loads(golden.value)
    else:
        assert value == golden.value


@pytest.mark.parametrize("exchange", RESULTS)
def test_a_golden_request_is_decoded_to_its_tensors(exchange: str) -> None:
    """The tensors listed in the manifest reach the model."""
    model = signature(exchange)

    chunk = chunk_of(codec(exchange), record(exchange))

    batch, refused = Stacker(model).stack([chunk], ClosedBy.SIZE)
    assert batch is not None
    assert not refused
    for tensor, expected in zip(model.inputs, arrays(exchange, model.inputs), strict=True):
        np.testing.assert_array_equal(batch.feeds[tensor.name], expected)


@pytest.mark.parametrize("exchange", RESULTS)
def test_a_golden_answer_is_what_we_write(exchange: str) -> None:
    """Value and headers are equal."""
    message = answer(codec(exchange), record(exchange), arrays(exchange, signature(exchange).outputs))

    expect(message, side(exchange, "answer"))


@pytest.mark.parametrize("exchange", ERRORS)
def test_a_golden_error_is_what_we_write(exchange: str) -> None:
    """A bad request gets exactly the example's error, and its dead letter the example's headers."""
    _, ((_, rejection),), _ = codec(exchange).read([record(exchange)])

    error, letter = codec(exchange).messages([rejection])

    expect(error, side(exchange, "error"))
    assert letter[2] == record(exchange).value
    if "dead_letter" in EXCHANGES[exchange]:
        headers = EXCHANGES[exchange]["dead_letter"]["headers"]
        assert text_of(letter) == headers


def json_values() -> dict[str, tuple[str, bytes]]:
    """Schema and JSON of every example that is JSON or begins with it, by a name for the test."""
    schemas = {"request": "request", "answer": "response", "error": "error"}
    sides = {
        f"{exchange}-{which}": (schema, side(exchange, which).head)
        for exchange, held in EXCHANGES.items()
        for which, schema in schemas.items()
        if which in held
    }
    return {name: (schema, head) for name, (schema, head) in sides.items() if head.startswith(b"{")}


@pytest.mark.parametrize(("schema", "value"), list(json_values().values()), ids=list(json_values()))
def test_json_examples_are_as_the_schemas_say(schema: str, value: bytes) -> None:
    """Even the bad examples fit: only the model's signature shows their faults."""
    rules = json.loads((SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(rules)

    Draft202012Validator(rules).validate(json.loads(value))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("request", {}),
        ("request", {"inputs": []}),
        ("request", {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32"}]}),
        ("request", {"inputs": [{"name": "x", "shape": [0, 3], "datatype": "FP32", "data": []}]}),
        ("request", {"inputs": [{"name": "x", "shape": [1], "datatype": "O", "data": [1]}]}),
        ("response", {"outputs": []}),
        ("error", {"id": "7"}),
    ],
)
def test_the_schemas_refuse_what_we_refuse(schema: str, value: dict[str, Any]) -> None:
    """A schema is no empty form: a wrong request, result or error does not pass."""
    rules = json.loads((SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8"))

    assert not Draft202012Validator(rules).is_valid(value)
