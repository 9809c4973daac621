"""Parameters that clients of other servers send: refused if they change the answer, otherwise reported once."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from tests.judging import field
from tests.unit.codecs.builders import (
    AS_JSON,
    AS_PROTOBUF,
    AS_ROWS,
    as_binary,
    as_json,
    codecs,
    document,
    floats,
    record,
    rejection,
    request,
    taking,
    tensor,
)
from worker.core.records import Record

Message = service_pb2.ModelInferRequest
TEXT = taking("BYTES", 1)
ROW = floats(1, 2, 3)


def as_protobuf(
    raw: Any = ROW, of_request: Any = None, of_input: Any = None, of_output: Any = None, **more: Any
) -> Record:
    """A protobuf request for the plain model with these parameters; `more` changes its input."""
    message = Message(raw_input_contents=[raw])
    message.inputs.add(**{"name": "x", "datatype": "FP32", "shape": [1, 3], **more})
    message.outputs.add(name="y")
    holders = (message, message.inputs[0], message.outputs[0])
    for holder, said in zip(holders, (of_request, of_input, of_output), strict=True):
        for name, value in (said or {}).items():
            kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
            setattr(holder.parameters[name], kind, value)
    return record(message.SerializeToString(), AS_PROTOBUF)


def in_every_encoding(where: str, said: dict[str, Any]) -> dict[str, Record]:
    """The plain request with these parameters on the request, its input or its output."""
    in_json = {
        "request": document(parameters=said),
        "input": document(inputs=[tensor(parameters=said)]),
        "output": document(outputs=[{"name": "y", "parameters": said}]),
    }[where]
    behind = {"binary_data_size": 12}
    head = {**in_json, "inputs": [tensor(parameters={**behind, **said} if where == "input" else behind)]}
    return {
        "json": as_json(in_json),
        "binary": as_binary(head, floats(1, 2, 3)),
        "protobuf": as_protobuf(**{f"of_{where}": said}),
    }


ENCODINGS = ["json", "binary", "protobuf"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("where", "parameters", "said"),
    [
        *[
            (where, {"content_type": of}, f"parameter content_type: '{of}' is not decoded here: send what it")
            for where in ("request", "input", "output")
            for of in ("base64", "hg_json", "datetime")
        ],
        ("input", {"content_type": "str"}, "'str' is not decoded here"),  # an input of numbers
        ("input", {"content_type": "pd"}, "'pd' is not decoded here"),
        ("input", {"shared_memory_region": "r"}, "shares no memory with you"),
        ("output", {"classification": 3}, "take the highest of the scores that come"),
    ],
)
def test_what_would_change_the_answer_is_refused(
    encoding: str, where: str, parameters: dict[str, Any], said: str
) -> None:
    """If it were ignored, the answer would have `status: ok` and not be what was asked for."""
    assert said in rejection(codecs(), in_every_encoding(where, parameters)[encoding]).message


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("where", "parameters"),
    [
        ("request", {"content_type": "np"}),
        ("request", {"content_type": "pd"}),
        ("input", {"content_type": "np"}),
        ("input", {"unknown": "content_type"}),
        ("output", {"content_type": "np"}),
        ("output", {"classification": 0}),
        ("output", {"shared_memory_region": ""}),
    ],
)
def test_what_says_no_more_than_the_protocol_changes_nothing(
    encoding: str, where: str, parameters: dict[str, Any]
) -> None:
    """MLServer's clients write `np` and `pd` with each request; the elements do not depend on it."""
    assert request(codecs(), in_every_encoding(where, parameters)[encoding]).rows == 1


def test_a_content_type_is_a_string() -> None:
    """Any other type gets a readable refusal, however it is nested."""
    asked = as_json(document(inputs=[tensor(parameters={"content_type": ["np"]})]))

    assert "content_type: an array is not decoded here" in rejection(codecs(), asked).message


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "parameters",
    [
        {"timeout": 5000, "priority": 1},
        {"sequence_id": 7, "sequence_start": True, "sequence_end": False},
        {"sequence_id": 0, "sequence_start": False, "sequence_end": False, "binary_data_output": False},
    ],
)
def test_what_changes_no_answer_is_passed_over(encoding: str, parameters: dict[str, Any]) -> None:
    """Triton's clients write 0 and false where they mean nothing."""
    assert request(codecs(), in_every_encoding("request", parameters)[encoding]).rows == 1


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_sequence_is_refused_where_the_model_has_state(encoding: str) -> None:
    """The state belongs to the record's key: one sequence's answers would use the state that another left there."""
    asked = in_every_encoding("request", {"sequence_start": True, "sequence_id": "s"})[encoding]

    message = rejection(codecs(has_state=True), asked).message

    assert "parameter sequence_id: the model remembers something of each key" in message
    assert request(codecs(has_state=True), in_every_encoding("request", {"sequence_id": 0})[encoding]).rows == 1


@pytest.mark.parametrize("entry", [b"", field(1, b"content_type")])
def test_a_parameter_that_says_nothing_is_passed_over(entry: bytes) -> None:
    """This holds in protobuf, and in JSON, where it may be null or empty."""
    message = as_protobuf().value or b""

    assert request(codecs(), record(message + field(4, entry), AS_PROTOBUF)).rows == 1
    for nothing in (None, ""):
        assert request(codecs(), as_json(document(parameters={"content_type": nothing}))).rows == 1


@pytest.mark.parametrize("encoding", [b"gzip", b" ZSTD", b"br"])
def test_rows_that_are_said_to_be_compressed_are_refused(encoding: bytes) -> None:
    """One in four of them would have a length that fits a model of one FP32."""
    compressed = record(bytes(12), AS_ROWS, ("content-encoding", encoding))

    assert "is not unpacked here: send the value as it is" in rejection(codecs(), compressed).message


def test_what_can_be_read_is_not_compressed_whatever_is_said() -> None:
    """A bridge from HTTP may unpack a body and pass its headers on."""
    said = ("content-encoding", b"gzip")

    assert request(codecs(), as_json(document(), said)).rows == 1
    assert request(codecs(), record(as_protobuf().value, AS_PROTOBUF, said)).rows == 1
    assert "it looks like gzip" in rejection(codecs(), record(gzip.compress(b"{}"), AS_JSON, said)).message


@pytest.mark.parametrize("encoding", [b"identity", b"utf-8", b"\xff"])
def test_other_encodings_of_a_value_change_nothing(encoding: bytes) -> None:
    """Some frameworks write a charset in this header."""
    assert request(codecs(), record(floats(1, 2, 3), AS_ROWS, ("content-encoding", encoding))).rows == 1
