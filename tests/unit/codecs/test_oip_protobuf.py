"""Open Inference Protocol requests and answers as protobuf; tritonclient's messages write and read them here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tests.unit.codecs.builders import (
    AS_PROTOBUF,
    X,
    answer,
    codecs,
    decode,
    elements,
    floats,
    giving,
    headers_of,
    model,
    packed,
    record,
    rejection,
    request,
    taking,
)
from worker.codecs.encodings.oip_protobuf import _InferenceError, read_tensors
from worker.core.failures import Code
from worker.core.records import Record
from worker.core.tensors.specs import DTYPES, TensorSpec

Input = service_pb2.ModelInferRequest.InferInputTensor
Output = service_pb2.ModelInferRequest.InferRequestedOutputTensor
Contents = service_pb2.InferTensorContents

FIELDS: dict[str, tuple[str, list[Any]]] = {
    "BOOL": ("bool_contents", [True, False, True]),
    "INT8": ("int_contents", [-128, 0, 127]),
    "INT16": ("int_contents", [-(2**15), 0, 2**15 - 1]),
    "INT32": ("int_contents", [-(2**31), 0, 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 0, 2**63 - 1]),
    "UINT8": ("uint_contents", [0, 1, 255]),
    "UINT16": ("uint_contents", [0, 1, 2**16 - 1]),
    "UINT32": ("uint_contents", [0, 1, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 1, 2**64 - 1]),
    "FP32": ("fp32_contents", [0.5, -1.5, 2.5]),
    "FP64": ("fp64_contents", [0.1, -1e300, 5e-324]),
    "BYTES": ("bytes_contents", [b"", "grüße".encode(), b"\0"]),
}


def x(**changes: Any) -> Any:
    return Input(**{"name": "x", "datatype": "FP32", "shape": [1, 3], **changes})


def as_protobuf(*inputs: Any, raw: Any = (), accept: bytes | None = None, **more: Any) -> Record:
    message = service_pb2.ModelInferRequest(inputs=inputs, raw_input_contents=raw, **more)
    return record(message.SerializeToString(), AS_PROTOBUF, ("accept", accept))


def test_raw_contents_are_taken_as_they_are() -> None:
    """They come in the order of the named inputs, and reach the model in its own order."""
    signature = model(X, TensorSpec("t", "BYTES", ()))
    text = Input(name="t", datatype="BYTES", shape=[1])

    decoded = request(codecs(signature), as_protobuf(text, x(), raw=[packed("é"), floats(1, 2, 3)]))

    assert decoded.tensors[0] == floats(1, 2, 3)
    assert elements(decoded.tensors[1], "O") == ["é"]
    assert decoded.shapes == ((3,), ())


@pytest.mark.parametrize("datatype", FIELDS)
def test_contents_hold_every_datatype_but_one(datatype: str) -> None:
    """Each datatype has its own field, and all its values from the least to the greatest."""
    field, values = FIELDS[datatype]
    given = as_protobuf(x(datatype=datatype, contents=Contents(**{field: values})))

    decoded = request(codecs(taking(datatype)), given)

    expected = [v.decode() if isinstance(v, bytes) else v for v in values]
    assert elements(decoded.tensors[0], DTYPES[datatype].str.replace("|O", "O")) == expected


@pytest.mark.parametrize(
    ("datatype", "contents", "said"),
    [
        ("FP32", {}, "expected its FP32 elements in fp32_contents, got none"),
        ("FP32", {"fp64_contents": [1, 2, 3]}, "in fp32_contents, got ['fp64_contents']"),
        ("FP32", {"fp32_contents": [1, 2, 3], "int_contents": [1]}, "got ['int_contents', 'fp32_contents']"),
        ("FP32", {"fp32_contents": [1, 2]}, "holds 3 elements, fp32_contents has 2"),
        ("INT8", {"int_contents": [1, 2, 128]}, "out of the range of INT8"),
        ("UINT16", {"uint_contents": [1, 2, 65536]}, "out of the range of UINT16"),
        ("FP16", {"fp32_contents": [1, 2, 3]}, "expected its FP16 elements in raw_input_contents"),
        ("BYTES", {"bytes_contents": [b"a", b"\xff", b"c"]}, "not UTF-8"),
    ],
)
def test_contents_are_strict(datatype: str, contents: dict[str, Any], said: str) -> None:
    """The field and the number of elements must be right, and each element in range."""
    given = as_protobuf(x(datatype=datatype, contents=Contents(**contents)))

    assert said in rejection(codecs(taking(datatype)), given).message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (as_protobuf(id="7"), "expected at least one tensor in `inputs`"),
        (as_protobuf(x(), raw=[b"", b""]), "raw_input_contents: expected one entry for each of 1 inputs, got 2"),
        (as_protobuf(x(), raw=[floats(1, 2)]), "expected 12 bytes (3 elements), got 8"),
        (as_protobuf(x(contents=Contents(fp32_contents=[1])), raw=[floats(1, 2, 3)]), "and in contents too"),
        (as_protobuf(x(name="z"), raw=[b""]), "the model has no input 'z'"),
        (as_protobuf(x(shape=[-1, 3]), raw=[b""]), "every dimension must be an integer of at least 1"),
        (as_protobuf(x(), x(), raw=[floats(1, 2, 3)] * 2), "an input is given twice"),
        (as_protobuf(x(), raw=[floats(1, 2, 3)], outputs=[Output(name="z")]), "the model has no output 'z'"),
        (as_protobuf(x(), raw=[floats(1, 2, 3)], id="i" * 1025), "id: at most 1024 bytes"),
        (record(b"\xff\xff\xff\xff", AS_PROTOBUF), "the value is no inference.ModelInferRequest"),
        (record(b"\x1a\x01\xff", AS_PROTOBUF), "the value is no inference.ModelInferRequest"),
    ],
)
def test_what_is_no_request_is_refused(given: Record, said: str) -> None:
    """The message says what was expected, and what came."""
    refused = rejection(codecs(), given)

    assert said in refused.message
    assert refused.code == Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [("", "", None), ("m", "1", None), ("other", "", Code.NOT_FOUND), ("m", "2", Code.NOT_FOUND)],
)
def test_another_model_is_not_found(name: str, version: str, code: Code | None) -> None:
    """A request that names no model gets the served one."""
    given = as_protobuf(x(), raw=[floats(1, 2, 3)], model_name=name, model_version=version)

    assert getattr(decode(codecs(), given), "code", None) == code


def test_an_answer_is_a_response_with_raw_contents() -> None:
    """It has the outputs asked for, in the order asked."""
    given = as_protobuf(x(), raw=[floats(1, 2, 3)], id="i-1", outputs=[Output(name="b"), Output(name="a")])

    message = answer(codecs(giving("FP16", "BYTES")), given, np.array([[1.5]], "<f2"), np.array([["é"]], object))

    response = service_pb2.ModelInferResponse.FromString(message.value)
    assert (response.model_name, response.model_version, response.id) == ("m", "1", "i-1")
    assert [(o.name, o.datatype, list(o.shape)) for o in response.outputs] == [
        ("b", "BYTES", [1, 1]),
        ("a", "FP16", [1, 1]),
    ]
    assert list(response.raw_output_contents) == [packed("é"), np.float16(1.5).tobytes()]
    assert headers_of(message)["content-type"] == "application/x-protobuf"


def test_an_error_is_protobuf_where_that_is_accepted() -> None:
    """Its writer finds the form and the id in the rejection."""
    codec = codecs()

    refused = rejection(codec, as_protobuf(x(), raw=[b""], id="i-1"))

    assert (refused.form.content_type, refused.ids.body_id) == ("application/x-protobuf", "i-1")


@pytest.mark.parametrize("datatype", FIELDS)
def test_a_request_is_shown_with_its_elements(datatype: str) -> None:
    """They may be in any field. Strings are shown as text, invalid UTF-8 too."""
    field, values = FIELDS[datatype]
    sent = [*values, b"\xff"] if datatype == "BYTES" else values
    given = as_protobuf(x(datatype=datatype, contents=Contents(**{field: sent})))

    named, found = read_tensors(given.value or b"", "inputs")

    told = ["", "grüße", "\0", "\\xff"] if datatype == "BYTES" else values
    assert (named, found) == ({}, [("x", datatype, [1, 3], told)])


def test_our_messages_are_not_in_the_default_pool() -> None:
    """So another client of the protocol can be imported in one process with ours, as this module does."""
    assert _InferenceError.DESCRIPTOR.file.pool is not service_pb2.DESCRIPTOR.pool
