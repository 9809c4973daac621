"""Open Inference Protocol requests and answers as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.codecs.builders import (
    AS_JSON,
    X,
    answer,
    as_json,
    codecs,
    decode,
    document,
    elements,
    giving,
    headers_of,
    model,
    record,
    rejection,
    request,
    taking,
    tensor,
)
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.failures import Code
from worker.core.tensors.specs import TensorSpec

TWO_INPUTS = model(X, TensorSpec("n", "INT64", ()))


def two_inputs(**changes: Any) -> dict[str, Any]:
    return document(inputs=[{"name": "n", "shape": [1], "datatype": "INT64", "data": [7]}, tensor()], **changes)


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6], [[[1], [2], [3]], [[4], [5], [6]]]], ids=["flat", "nested"])
def test_data_is_flat_or_nested_as_the_shape_says(data: list[Any]) -> None:
    """Both are row-major."""
    decoded = request(codecs(taking("FP32", 3, None)), as_json({"inputs": [tensor(shape=[2, 3, 1], data=data)]}))

    assert elements(decoded.tensors[0], "<f4") == [1, 2, 3, 4, 5, 6]
    assert (decoded.rows, decoded.shapes) == (2, ((3, 1),))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([1.0, 2.0], "shape [1, 3] holds 3 elements, got 2"),
        ([1.0, 2.0, 3.0, 4.0], "shape [1, 3] holds 3 elements, got 4"),
        ([[1.0, 2.0]], "not nested as shape [1, 3] says"),
        ([[1.0, 2.0, 3.0], [1.0]], "not nested as shape [1, 3] says"),
        ([[1.0, 2.0, 3.0], 4.0], "not nested as shape [1, 3] says"),
        ([[[1.0], [2.0], [3.0]]], "got an array among them"),
        ([1.0, 2.0, [3.0]], "got an array among them"),
        ([], "holds 3 elements, got 0"),
        ("AAAA", "expected `data` to be an array of 3 elements, got a string"),
        (None, "expected `data` to be an array of 3 elements, got null"),
        ({"0": 1.0}, "expected `data` to be an array of 3 elements, got an object"),
        (["1.0", 2.0, 3.0], "expected FP32 elements, got a string among them"),
        ([None, 2.0, 3.0], "got null among them"),
        ([True, 2.0, 3.0], "got a boolean among them"),
        ([{}, 2.0, None], "got an object, null among them"),
        ([1e39, 2.0, 3.0], "out of the range of FP32"),
        ([1.0, 2, -1e39], "out of the range of FP32"),
    ],
)
def test_elements_are_strict(data: Any, said: str) -> None:
    """The worker casts, parses, pads and cuts nothing."""
    refused = rejection(codecs(), as_json({"inputs": [tensor(data=data)]}))

    assert said in refused.message
    assert refused.code == Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("datatype", "element", "said"),
    [
        ("INT32", 1.0, "expected INT32 elements, got a fraction among them"),
        ("INT64", 2**63, "out of the range of INT64"),
        ("INT64", 2**64, "got a fraction among them"),
        ("INT64", 1e15, "got a fraction among them"),
        ("UINT8", 256, "out of the range of UINT8"),
        ("UINT8", -1, "out of the range of UINT8"),
        ("UINT64", -1, "out of the range of UINT64"),
        ("UINT64", 1e19, "got a fraction among them"),
        ("BOOL", 1, "expected BOOL elements, got an integer among them"),
        ("BYTES", 1, "expected BYTES elements, got an integer among them"),
        ("BYTES", None, "got null among them"),
        ("FP16", 1.0, "FP16 is taken only as bytes"),
    ],
)
def test_elements_belong_to_their_datatype(datatype: str, element: Any, said: str) -> None:
    """An integer may stand for a float; no other substitution is allowed."""
    held = {"inputs": [tensor(datatype=datatype, shape=[1, 1], data=[element])]}

    assert said in rejection(codecs(taking(datatype, 1)), as_json(held)).message


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"{", "the value is not JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"inputs": "\xff\xfe"}', "it is not UTF-8"),
        (b'{"id": "\\ud800"}', "surrogate"),
        (b"[" * 2000, "depth limit"),
        (b'{"inputs": [{"data": [' + b"9" * 4000 + b"]}]}", "infinity"),
        (b'{"inputs": [{"data": [NaN]}]}', "the value is not JSON: JSON has no NaN: line 1 column 23"),
        (b'{"inputs": [{"data": [-Infinity]}]}', "the value is not JSON: JSON has no Infinity: line 1 column 24"),
        (b" ", "the value is not JSON"),
        (b"[]", "expected a JSON object with `inputs`, got an array"),
        (b"null", "got null"),
        (b"7", "got an integer"),
        (b"7.5", "got a fraction"),
        (b'"text"', "got a string"),
        (b"true", "got a boolean"),
    ],
)
def test_a_value_that_is_no_json_object_is_refused(value: bytes, said: str) -> None:
    """The message says where it went wrong."""
    assert said in rejection(codecs(), record(value, AS_JSON)).message


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({}, "expected `inputs`, an array of at least one tensor"),
        ({"inputs": []}, "expected `inputs`, an array of at least one tensor"),
        ({"inputs": None}, "expected `inputs`, an array of at least one tensor"),
        ({"inputs": {"x": 1}}, "expected `inputs` to be an array, got an object"),
        ({"inputs": [7]}, "`inputs`: expected an array of objects, got an integer in it"),
        ({"inputs": [{}]}, "an input: `name` is missing"),
        ({"inputs": [tensor(name=7)]}, "an input: expected `name` to be a string, got an integer"),
        ({"inputs": [tensor(name="z")]}, "the model has no input 'z'; it takes x FP32[batch, 3]"),
        ({"inputs": [tensor(datatype=None)]}, "input 'x': `datatype` is missing"),
        ({"inputs": [tensor(datatype="FP64")]}, "expected datatype FP32, got 'FP64'"),
        ({"inputs": [tensor(datatype=["FP32"])]}, "expected `datatype` to be a string, got an array"),
        ({"inputs": [tensor(shape=None)]}, "input 'x': `shape` is missing"),
        ({"inputs": [tensor(shape="13")]}, "expected `shape` to be an array, got a string"),
        ({"inputs": [tensor(shape=[3])]}, "got shape [3]"),
        ({"inputs": [tensor(shape=[1, 4])]}, "got shape [1, 4]"),
        ({"inputs": [tensor(shape=[1.0, 3])]}, "every dimension must be an integer"),
        ({"inputs": [tensor(shape=[True, 3])]}, "every dimension must be an integer"),
        ({"inputs": [tensor(shape=[-1, 3])]}, "every dimension must be an integer"),
        ({"inputs": [tensor(shape=[2**64, 3])]}, "every dimension must be an integer"),
        ({"inputs": [tensor(shape=[1] * 40)]}, "40 dimensions"),
        ({"inputs": [tensor(parameters=[])]}, "expected `parameters` to be an object, got an array"),
        ({"inputs": [{k: v for k, v in tensor().items() if k != "data"}]}, "expected `data`, or the parameter"),
        ({"inputs": [tensor(), tensor()]}, "an input is given twice"),
        (document(parameters={"binary_data_output": 1}), "expected `binary_data_output` to be a boolean"),
        (document(outputs={}), "expected `outputs` to be an array, got an object"),
        (document(outputs=["y"]), "`outputs`: expected an array of objects, got a string in it"),
        (document(outputs=[{}]), "an output: `name` is missing"),
        (document(outputs=[{"name": "nope"}]), "the model has no output 'nope'; it gives y FP32[batch, 2]"),
        (document(outputs=[{"name": "y"}, {"name": "y"}]), "an output is asked for twice"),
        (document(outputs=[{"name": "y", "parameters": {"binary_data": "yes"}}]), "`binary_data` to be a boolean"),
        (document(model_name=7), "expected `model_name` to be a string"),
        (document(id=7), "id: expected a string, got an integer"),
        (document(id="é" * 513), "id: at most 1024 bytes, got 1026"),
    ],
)
def test_a_document_that_is_no_request_is_refused(held: Any, said: str) -> None:
    """The message says what was expected, and what came."""
    refused = rejection(codecs(), as_json(held))

    assert said in refused.message
    assert refused.code == Code.INVALID_ARGUMENT


def test_all_inputs_are_needed_and_their_order_is_free() -> None:
    """Inputs reach the model in its own order. All must have equal row counts."""
    decoded = request(codecs(TWO_INPUTS), as_json(two_inputs()))
    missing = rejection(codecs(TWO_INPUTS), as_json(document()))
    uneven = rejection(
        codecs(TWO_INPUTS), as_json({"inputs": [two_inputs()["inputs"][0], tensor(shape=[2, 3], data=[0] * 6)]})
    )

    assert [elements(t, of) for t, of in zip(decoded.tensors, ("<f4", "<i8"), strict=True)] == [[1, 2, 3], [7]]
    assert "missing input n" in missing.message
    assert "same number of rows, got x: 2, n: 1" in uneven.message


@pytest.mark.parametrize(
    ("held", "code"),
    [
        (document(model_name="m", model_version="1"), None),
        (document(model_name="", model_version=""), None),
        (document(model_name=None, model_version=None), None),
        (document(model_name="other"), Code.NOT_FOUND),
        (document(model_version="2"), Code.NOT_FOUND),
    ],
)
def test_another_model_is_not_found(held: Any, code: Code | None) -> None:
    """A request that names no model gets the served one."""
    decoded = decode(codecs(), as_json(held))

    assert getattr(decoded, "code", None) == code


def test_of_a_member_that_comes_twice_the_last_counts() -> None:
    """Every JSON parser does so."""
    value = b'{"inputs": 7, "inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}'

    assert request(codecs(), record(value, AS_JSON)).rows == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"parameters": {"binary_data_output": True}},
        {"outputs": [{"name": "a", "parameters": {"binary_data": True}}]},
    ],
)
def test_a_json_request_may_ask_for_bytes(asked: dict[str, Any]) -> None:
    """Then the answer is in binary-data form, the only one that FP16 has."""
    message = answer(codecs(giving("FP16")), as_json(document(**asked)), np.array([[1.5]], "<f2"))

    assert message.value is not None
    said = headers_of(message)
    assert said["content-type"] == "application/octet-stream"
    assert message.value[int(said[HEAD_LENGTH]) :] == np.float16(1.5).tobytes()


def test_bytes_are_not_sent_to_who_accepts_only_json() -> None:
    """The requester must solve the contradiction."""
    held = as_json(document(parameters={"binary_data_output": True}), ("accept", b"application/json"))

    assert "`accept` admits only application/json" in rejection(codecs(), held).message


def test_a_json_request_may_accept_the_binary_data_form() -> None:
    """Then all outputs are bytes, unless the request says otherwise."""
    given = as_json(document(), ("accept", b"application/octet-stream"))

    message = answer(codecs(), given, np.array([[1, 2]], "<f4"))

    assert message.value is not None
    assert message.value.endswith(np.array([1, 2], "<f4").tobytes())
    assert HEAD_LENGTH in headers_of(message)


@pytest.mark.parametrize("held", [document(), document(outputs=[{"name": "a", "parameters": {"binary_data": False}}])])
def test_half_floats_are_refused_in_json_before_inference(held: Any) -> None:
    """The message names the cure."""
    message = rejection(codecs(giving("FP16")), as_json(held)).message

    assert message.startswith("output a: FP16 has no form in JSON; ask for it with the parameter binary_data")


@pytest.mark.parametrize("depth", [500, 1015])
def test_a_shape_of_nested_lists_is_refused(depth: int) -> None:
    """JSON's reader takes the second one, which is too deep for Python's `repr`."""
    shape = b"[" * depth + b"]" * depth
    value = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": %s, "data": [1, 2, 3]}]}' % shape

    assert rejection(codecs(), record(value)).code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("headers", "ends"),
    [
        ((), "; without the header content-type it is read as application/json"),
        ((("Content-Type", b"application/json"),), "(char 0)"),
    ],
)
def test_what_is_no_json_says_why_it_was_read_as_that(headers: tuple[tuple[str, bytes], ...], ends: str) -> None:
    """Rows and compressed bodies look like this when a publisher forgets the header."""
    assert rejection(codecs(), record(b"\x00\x00\x00\x00\x07", *headers)).message.endswith(ends)
