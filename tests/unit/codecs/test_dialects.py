"""What clients of other servers write almost like the protocol is taken as it is meant, or refused; never otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tests.unit.codecs.builders import (
    AS_PROTOBUF,
    AS_ROWS,
    as_binary,
    as_json,
    codecs,
    document,
    elements,
    floats,
    record,
    rejection,
    request,
    taking,
    tensor,
)
from worker.core.records import Rejection
from worker.core.runs import Run

Message = service_pb2.ModelInferRequest


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"datatype": "float32"}, "expected datatype FP32, got 'float32'"),
        ({"datatype": "TYPE_FP32"}, "expected datatype FP32, got 'TYPE_FP32'"),
        ({"datatype": "fp32"}, "expected datatype FP32, got 'fp32'"),
        ({"shape": ["1", "3"]}, "every dimension must be an integer"),
        ({"shape": [1.0, 3.0]}, "every dimension must be an integer"),
        ({"shape": [-1, 3]}, "every dimension must be an integer of at least 1"),
        ({"shape": [2, 3], "data": [[1, 2], [3, 4], [5, 6]]}, "`data` is not nested as shape [2, 3] says"),
        ({"data": [[[1, 2, 3]]]}, "`data` is not nested"),
        ({"data": ["1", "2", "3"]}, "got a string among them"),
        ({"data": ["NaN", 1, 2]}, "got a string among them"),
        ({"data": [True, False, True]}, "got a boolean among them"),
        ({"data": [None, 1, 2]}, "got null among them"),
        ({"data": {"0": 1, "1": 2, "2": 3}}, "expected `data` to be an array of 3 elements, got an object"),
        ({"data": "AACAPwAAAEAAAEBA"}, "expected `data` to be an array of 3 elements, got a string"),
        ({"data": 5}, "expected `data` to be an array of 3 elements, got an integer"),
        ({"parameters": {"binary_data_size": 12}}, "binary_data_size is 12, 0 bytes are left"),
        ({"parameters": {"binary_data_size": 0}}, "expected 12 bytes (3 elements), got 0"),
        ({"parameters": {"binary_data_size": "12"}}, "expected `binary_data_size` to be an integer"),
    ],
)
def test_an_input_that_is_written_otherwise_is_refused(changes: dict[str, Any], said: str) -> None:
    """Nothing is converted, reshaped or taken from where it does not belong."""
    assert said in rejection(codecs(), as_json(document(inputs=[tensor(**changes)]))).message


@pytest.mark.parametrize(
    ("datatype", "data", "said"),
    [
        ("BOOL", [1, 0, 1], "expected BOOL elements, got an integer"),
        ("BOOL", ["true", "false", "true"], "expected BOOL elements, got a string"),
        ("INT64", [1.0, 2.0, 3.0], "expected INT64 elements, got a fraction"),
        ("INT64", ["1", "2", "3"], "expected INT64 elements, got a string"),
        ("INT64", [True, False, True], "expected INT64 elements, got a boolean"),
        ("UINT8", [-1, 2, 3], "out of the range of UINT8"),
        ("BYTES", [1, 2, 3], "expected BYTES elements, got an integer"),
        ("BYTES", [{"b64": "YQ=="}] * 3, "expected BYTES elements, got an object"),
        ("BYTES", [None, "a", "b"], "expected BYTES elements, got null"),
        ("BYTES", "abc", "expected `data` to be an array of 3 elements, got a string"),
        ("BYTES", [[97, 98, 99]], "expected BYTES elements, got an integer"),
    ],
)
def test_elements_of_another_kind_are_refused(datatype: str, data: Any, said: str) -> None:
    """A 1 may be a truth, a text a number, and base64 a text: who knows is the publisher."""
    asked = as_json(document(inputs=[tensor(datatype=datatype, data=data)]))

    assert said in rejection(codecs(taking(datatype)), asked).message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"outputs": ["y"]}, "`outputs`: expected an array of objects, got a string in it"),
        ({"outputs": {"y": {}}}, "expected `outputs` to be an array, got an object"),
        ({"outputs": [{"name": "y", "parameters": {"binary_data": "true"}}]}, "`binary_data` to be a boolean"),
        ({"outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}, "`binary_data` to be a boolean"),
        ({"parameters": {"binary_data_output": "true"}}, "`binary_data_output` to be a boolean"),
        ({"inputs": [tensor(), tensor()]}, "an input is given twice"),
        ({"model_version": 1}, "expected `model_version` to be a string, got an integer"),
        ({"id": 17}, "id: expected a string, got an integer"),
    ],
)
def test_a_request_that_is_written_otherwise_is_refused(changes: dict[str, Any], said: str) -> None:
    """Passed over, it would be answered in another form than was asked for."""
    assert said in rejection(codecs(), as_json(document(**changes))).message


def test_data_and_bytes_of_one_input_are_the_bytes() -> None:
    """As Triton has it; the bytes are counted, so none of them is another input's."""
    both = as_binary(document(inputs=[tensor(parameters={"binary_data_size": 12}, data=[7, 8, 9])]), floats(1, 2, 3))

    assert elements(request(codecs(), both).tensors[0], "<f4") == [1, 2, 3]


@pytest.mark.parametrize("field", ["fp64_contents", "int64_contents", "int_contents"])
def test_elements_in_another_field_of_protobuf_are_refused(field: str) -> None:
    """Also where their numbers would fit."""
    message = Message()
    tensor = message.inputs.add(name="x", datatype="FP32", shape=[1, 3])
    getattr(tensor.contents, field).extend([1, 2, 3])

    refused = rejection(codecs(), record(message.SerializeToString(), AS_PROTOBUF))

    assert f"expected its FP32 elements in fp32_contents, got ['{field}']" in refused.message


def test_raw_contents_of_another_size_are_refused() -> None:
    """numpy makes FP64 of a list."""
    message = Message(raw_input_contents=[np.array([1.0, 2.0, 3.0]).tobytes()])
    message.inputs.add(name="x", datatype="FP32", shape=[1, 3])

    refused = rejection(codecs(), record(message.SerializeToString(), AS_PROTOBUF))

    assert "expected 12 bytes (3 elements), got 24" in refused.message


def of_rows_length(text: bytes) -> bytes:
    """The same JSON, as long as some rows of three FP32."""
    return text + b" " * (-len(text) % 12)


JSON_AS_ROWS = of_rows_length(b'{"instances": [[1, 2, 3]]}')


@pytest.mark.parametrize("headers", [(AS_ROWS,), ()])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (of_rows_length(b'{"inputs": [{"name": "x"}]}'), "it looks like JSON: send the header content-type"),
        (JSON_AS_ROWS, "it looks like a request of KServe version 1"),
        (b"\x93NUMPY\x01\x00v\x00" + bytes(2), "it looks like a file of numpy"),
    ],
)
def test_json_is_not_taken_for_rows_because_of_its_length(headers: Any, value: bytes, said: str) -> None:
    """One length in twelve fits: where the header is wrong, or plain rows are the default."""
    codec = codecs(default_content_type="application/octet-stream")

    assert "got a text or a file; it looks like" in rejection(codec, record(value, *headers)).message
    assert said in rejection(codec, record(value, *headers)).message
    assert all(isinstance(each, Rejection) for each in codec.decode_all([record(value, *headers)] * 9))


def test_json_among_rows_of_its_length_is_not_taken_for_one() -> None:
    """Where two teams write to one topic."""
    rows = [record(floats(1, 2, 3) * (len(JSON_AS_ROWS) // 12), AS_ROWS)] * 9

    decoded = codecs().decode_all([*rows, record(JSON_AS_ROWS, AS_ROWS), *rows])

    (refused,) = [each for each in decoded if isinstance(each, Rejection)]
    assert "got a text or a file" in refused.message
    assert sum(len(each.records) for each in decoded if isinstance(each, Run)) > len(rows)


@pytest.mark.parametrize(
    "value",
    [
        b"{" + floats(1, 2, 3)[1:],
        b'{"' + bytes(21) + b"}",
        b'{"abcdefgh' + b"\xff" + b"abcdefghijkl}",
        b'{"abcdefghi}',
        b"\x93NUMPX" + bytes(6),
    ],
)
def test_rows_may_begin_as_json_does(value: bytes) -> None:
    """One in 256 does. Those that end so, too, have bytes between that are no text, or are short."""
    assert request(codecs(), record(value, AS_ROWS)).rows == len(value) // 12
    (run,) = codecs().decode_all([record(value, AS_ROWS)] * 9)
    assert isinstance(run, Run)


def test_text_may_be_rows_of_bytes_or_what_headers_say_it_is() -> None:
    """Some models read the characters of a text as UINT8."""
    stated = [("datatype", b"FP32"), ("rows", b"%d" % (len(JSON_AS_ROWS) // 12))]

    assert request(codecs(taking("UINT8")), record(JSON_AS_ROWS, AS_ROWS)).rows == len(JSON_AS_ROWS) // 3
    assert request(codecs(), record(JSON_AS_ROWS, AS_ROWS, *stated)).rows == len(JSON_AS_ROWS) // 12
