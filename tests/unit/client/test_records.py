"""A record as bytes, and its answer as a dictionary."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from inference_client import InferenceClient
from inference_client.errors import Internal, InvalidArgument
from inference_client.records import RecordEncoder, Records
from tests.unit.client.builders import METADATA

OK = {"status": b"ok", "content-type": b"application/json"}
ERROR = {"status": b"error", "error-code": b"INVALID_ARGUMENT", "source": b"payments/0/7"}


def shouted(record: Any) -> bytes:
    """Stands for a serializer of a registry."""
    return b"!" + json.dumps(record).encode()


def heard(value: bytes) -> Any:
    return json.loads(value.removeprefix(b"!"))


JSON, FRAMED = RecordEncoder(Records()), RecordEncoder(Records(shouted, heard))


@pytest.mark.parametrize(
    ("record", "value"),
    [
        ({"id": 1, "customer": {"country": "NL"}, "note": None}, b'{"id":1,"customer":{"country":"NL"},"note":null}'),
        ({"amount": np.float32(0.5), "counts": np.arange(2)}, b'{"amount":0.5,"counts":[0,1]}'),
        ({"amount": float("nan")}, b'{"amount":null}'),
        ({"amount": Decimal("1.10"), "most": Decimal("1E+400")}, b'{"amount":1.10,"most":1E+400}'),
        ({"amount": Decimal("NaN")}, b'{"amount":null}'),
        ({"column": np.eye(2)[:, 1], "one": np.array(2)}, b'{"column":[0.0,1.0],"one":2}'),
        ("grüße", "grüße".encode()),
        (b"\xff\xd8", b"\xff\xd8"),
    ],
)
def test_a_record_is_its_value(record: Any, value: bytes) -> None:
    """A dictionary is JSON, and a text or bytes are the whole value. No header says how to read it."""
    assert JSON.encode(record) == (value, ())


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ([1.0], "expected a record as a dict, or a text or bytes, got list"),
        ({"id": object()}, "no form in JSON: Type is not JSON serializable: object"),
        ("\ud800", "no form in UTF-8"),
    ],
)
def test_a_record_without_a_form_is_refused(record: Any, why: str) -> None:
    """Nothing is sent, and the error says why."""
    with pytest.raises(InvalidArgument, match=why):
        JSON.encode(record)


def test_a_program_s_own_functions_write_and_read() -> None:
    """The client needs no registry's library."""
    assert FRAMED.encode({"id": 1}) == (b'!{"id": 1}', ())
    assert FRAMED.decode(OK, b'!{"score": 0.5}') == {"score": 0.5}


def test_an_answer_is_a_dictionary() -> None:
    """Its values are those of its JSON."""
    assert JSON.decode(OK, b'{"id":1,"score":0.93,"label":"fraud"}') == {"id": 1, "score": 0.93, "label": "fraud"}


@pytest.mark.parametrize(
    ("headers", "value"),
    [({"content-type": b"avro/binary"}, b'!{"error": "amount: missing"}'), (OK, b'{"error":"amount: missing"}')],
)
def test_an_error_comes_in_the_answers_form_or_in_json(headers: dict[str, bytes], value: bytes) -> None:
    """Both are the error of that code."""
    error = FRAMED.decode({**headers, **ERROR}, value)

    assert isinstance(error, InvalidArgument)
    assert (error.message, error.source) == ("amount: missing", "payments/0/7")


@pytest.mark.parametrize("value", [b"no JSON", b"[1]", b"null"])
def test_an_answer_that_is_no_dictionary_ends_its_future(value: bytes) -> None:
    """It ends with an error, so that no thread waits for it."""
    assert isinstance(JSON.decode(OK, value), Internal)


def test_records_need_no_signature() -> None:
    """A client has one or the other."""
    with pytest.raises(ValueError, match="not both"):
        InferenceClient("localhost:1", requests="a", answers="b", signature=METADATA, records=Records())


def test_an_answer_with_a_schema_says_what_reads_it() -> None:
    """A client without the functions of the registry is told of them, and still gets the worker's code."""
    avro = {"content-type": b"application/vnd.confluent.avro"}

    answered = JSON.decode({**OK, **avro, "source": b"payments/0/7"}, b"\0\0\0\0\7...")
    refused = JSON.decode({**ERROR, **avro}, b"\0\0\0\0\7...")

    assert isinstance(answered, Internal)
    assert isinstance(refused, InvalidArgument)
    assert (answered.source, refused.source) == ("payments/0/7", "payments/0/7")
    for error in (answered, refused):
        assert "application/vnd.confluent.avro, and no JSON" in error.message
        assert "Records(write=…, read=…)" in error.message
    assert FRAMED.decode({**OK, **avro}, b'!{"score": 0.5}') == {"score": 0.5}
