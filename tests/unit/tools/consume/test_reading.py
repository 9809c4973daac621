"""Records as people read them: answers in every encoding, requests, and any other record of a topic."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.unit.codecs.builders import (
    AS_PROTOBUF,
    AS_ROWS,
    answer,
    as_json,
    codecs,
    document,
    f4,
    model,
    record,
    rejection,
)
from worker.codecs.examples import EncodingName, encode_request
from worker.codecs.wire_contract import HEAD_LENGTH, JSON, OCTETS, PROTOBUF
from worker.core.records import Fields, Record
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.tools.consume.reading import Reading, json_line, read

OK = ("status", b"ok")
ANSWER = f4([[0.5, 0.25]])
MIXED = model(
    outputs=[TensorSpec("label", "BYTES", (1,)), TensorSpec("half", "FP16", (2,)), TensorSpec("no", "BOOL", ())]
)
MIXED_ANSWER = (np.array([["grüße"]], object), np.array([[1.5, -2]], "<f2"), np.array([True]))


def came(answer: Fields) -> Record:
    """The answer as a reader gets it."""
    _, _, value, headers, *_ = answer
    return record(value, *(headers or ()))


def answered(accept: str, signature: Signature | None = None, *outputs: np.ndarray) -> Record:
    """The worker's own answer in that encoding."""
    asked = as_json(document(id="a1"), ("accept", accept.encode()))
    return came(answer(codecs(signature), asked, *(outputs or (ANSWER,))))


def shown(reading: Reading, role: str = "outputs") -> list[tuple[str, str, object, list[object]]]:
    return [(t["name"], t["datatype"], t["shape"], np.asarray(t["data"]).tolist()) for t in reading[role]]


@pytest.mark.parametrize("accept", [JSON, PROTOBUF, OCTETS])
def test_an_answer_is_read_in_every_encoding(accept: str) -> None:
    """All encodings give equal tensors, and the model's name."""
    reading = read(answered(accept))

    assert shown(reading) == [("y", "FP32", [1, 2], [0.5, 0.25])]
    assert {name: reading[name] for name in reading if name != "outputs"} == {
        "model_name": "m",
        "model_version": "1",
        "id": "a1",
    }


@pytest.mark.parametrize("accept", [PROTOBUF, OCTETS])
def test_strings_halves_and_truth_values_are_read_from_bytes(accept: str) -> None:
    """They follow the datatype, in a form that a line of JSON allows."""
    reading = read(answered(accept, MIXED, *MIXED_ANSWER))

    assert shown(reading) == [
        ("label", "BYTES", [1, 1], ["grüße"]),
        ("half", "FP16", [1, 2], [1.5, -2.0]),
        ("no", "BOOL", [1], [True]),
    ]
    assert [each["data"] for each in json.loads(json_line(reading))["outputs"]] == [["grüße"], [1.5, -2.0], [True]]


@pytest.mark.parametrize("accept", [JSON, PROTOBUF])
def test_an_error_is_read(accept: str) -> None:
    """It has its message and the id; a missing id is not made up."""
    codec = codecs()
    refused = rejection(codec, as_json(document(id="a1", inputs=[{}]), ("accept", accept.encode())))
    message, nameless = codec.messages([refused, rejection(codec, record(b"", AS_PROTOBUF))])

    assert read(came(message)) == {"error": refused.message, "id": "a1"}
    assert read(came(nameless)).keys() == {"error"}


def test_rows_are_read_with_the_model_alone() -> None:
    """Rows do not describe themselves. If the file does not say how many elements a row has, they are shown flat."""
    rows = record(ANSWER.tobytes() * 2, AS_ROWS, OK)

    assert read(rows) == {}
    assert shown(read(rows, model)) == [("y", "FP32", [2, 2], [0.5, 0.25, 0.5, 0.25])]
    flat = shown(read(rows, lambda: model(outputs=[TensorSpec("y", "FP32", (None,))])))
    assert flat == [("y", "FP32", None, [0.5, 0.25, 0.5, 0.25])]


@pytest.mark.parametrize("encoding", EncodingName)
def test_a_request_is_read_too(encoding: EncodingName) -> None:
    """The original in a dead letter is a request: it has no status."""
    encoded = encode_request(model(), {"x": f4([[1, 2, 3]])}, encoding)

    reading = read(record(encoded.value, *encoded.headers), model)

    assert shown(reading, "inputs") == [("x", "FP32", [1, 3], [1.0, 2.0, 3.0])]


def binary(datatype: str, shape: list[int]) -> Record:
    """Four bytes that claim to be a tensor like this."""
    entry = {"name": "y", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": 4}}
    head = json.dumps({"outputs": [entry]}).encode()
    return record(head + b"\0\0\0\0", AS_ROWS, (HEAD_LENGTH, b"%d" % len(head)), OK)


@pytest.mark.parametrize(
    "odd",
    [
        record(None),
        record(b""),
        record(b"no json"),
        record(b"[1, 2]"),
        record(b"7"),
        record(b"{}"),
        record(b'{"inputs": 7}'),
        record(b'{"inputs": [7]}'),
        record(b'{"outputs": [{}]}', OK),
        record(b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": 7}]}', OK),
        record(b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1.5], "data": []}]}', OK),
        record(b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": 7, "data": []}]}', OK),
        record(b"\xff\xff\xff", AS_PROTOBUF, OK),
        record(b"\xff\xff\xff", AS_PROTOBUF, ("status", b"error")),
        record(b"{}", AS_ROWS, (HEAD_LENGTH, b"99"), OK),
        record(b"{}", AS_ROWS, (HEAD_LENGTH, b"many"), OK),
        record(b"", ("content-type", b"\xff\xfe")),
        binary("FP32", [2, 2]),
        binary("BF16", [1, 1]),
        binary("FP32", [2**40, 2**40]),
    ],
)
def test_a_value_that_is_not_what_it_says_is_no_failure(odd: Record) -> None:
    """It is shown as bytes, since nothing else is known about it."""
    assert read(odd) == {}


def test_a_line_of_json_moves_no_cursor() -> None:
    """Control characters that JSON allows are escaped without a change of meaning; other text stays."""
    text = "a\x7f\x80\x9b31m\x9f\xa0°é\u0080"

    found = json_line({text: [text]})

    escaped = rb"a\u007f\u0080\u009b31m\u009f" + "\xa0°é".encode() + rb"\u0080"
    assert found == b'{"' + escaped + b'":["' + escaped + b'"]}\n'
    assert json.loads(found) == {text: [text]}
