"""Large requests: how much of a value is parsed, and how many parts of it are read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.judging import field, varint
from tests.unit.codecs.builders import (
    AS_PROTOBUF,
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
from worker.core.failures import Code
from worker.core.records import Record
from worker.core.tensors.specs import TensorSpec


def in_protobuf(value: bytes) -> Record:
    return record(value, AS_PROTOBUF)


def an_input(datatype: str, count: int, *more: bytes) -> bytes:
    return field(1, b"x") + field(2, datatype.encode()) + field(3, b"\1" + varint(count)) + b"".join(more)


MANY = 100_000
NUMBERS = floats(*range(MANY))
BESIDE = field(5, an_input("FP32", MANY))
SIZED = tensor(shape=(1, MANY), parameters={"binary_data_size": len(NUMBERS)})


@pytest.mark.parametrize(
    "given",
    [as_binary({"inputs": [SIZED]}, NUMBERS), in_protobuf(BESIDE + field(7, NUMBERS))],
    ids=["binary data", "raw contents"],
)
def test_bytes_of_tensors_do_not_count_as_json(given: Record) -> None:
    """Tensors as bytes are not parsed: only the limit on the whole request holds for them."""
    decoded = request(codecs(taking("FP32", None), max_json_bytes=200), given)

    assert elements(decoded.tensors[0], "<f4") == list(range(MANY))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (as_json({"inputs": [tensor(shape=(1, MANY), data=[0.5] * MANY)]}), "the JSON has 500079 bytes"),
        (as_binary({"inputs": [SIZED], "id": "i" * 500}, NUMBERS), "the JSON has 648 bytes"),
        (in_protobuf(field(5, an_input("FP32", MANY, field(5, field(6, NUMBERS))))), "raw_input_contents, has 4000"),
        (in_protobuf(BESIDE + field(4, bytes(300)) + field(7, NUMBERS)), "raw_input_contents, has 324 bytes"),
    ],
    ids=["json", "head", "contents", "parameters"],
)
def test_more_to_parse_than_the_cap_is_refused(given: Record, said: str) -> None:
    """The message names the cap, its setting, and the cure."""
    refused = rejection(codecs(taking("FP32", None), max_json_bytes=200), given)

    assert said in refused.message
    assert "at most 200 are taken (WORKER_KAFKA__MAX_JSON_BYTES): send large tensors as bytes" in refused.message
    assert refused.code is Code.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "UINT8"])
def test_among_many_numbers_no_truth_value_is_one(datatype: str) -> None:
    """A boolean is found where all other elements are 0 or 1, and where none is."""
    codec = codecs(taking(datatype, None))

    def asking(*data: int) -> Record:
        return as_json({"inputs": [tensor(datatype=datatype, shape=(1, len(data)), data=data)]})

    for others in (7, 1, 0):
        assert request(codec, asking(*[others] * 5000)).rows == 1
        assert "got a boolean among them" in rejection(codec, asking(*[others] * 5000, True)).message


LARGE = bytes(300_000)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\x2a\0" * 150_000, "may have 10000 fields"),
        (b"\x78\1" * 150_000, "all of them bytes, texts or messages"),
        (field(7, LARGE) + b"\xff" * 20, "all of them bytes, texts or messages"),
        (field(7, LARGE)[:-1], "the value is no inference.ModelInferRequest"),
    ],
    ids=["many", "numbers", "no tag", "cut"],
)
def test_a_large_message_has_few_fields(value: bytes, said: str) -> None:
    """The parser makes an object of each field."""
    assert said in rejection(codecs(), in_protobuf(value)).message


def test_of_more_inputs_and_outputs_than_the_model_has_the_first_wrong_one_is_named() -> None:
    """However many come, the error names the first wrong one. The binary-data form does not add up their sizes then."""
    more = as_json({"inputs": [tensor(), *[tensor(name=f"z{at}") for at in range(20)]]})
    sized = tensor(parameters={"binary_data_size": 12})
    behind = as_binary({"inputs": [sized] * 3}, floats(1, 2, 3) * 3)
    outputs = as_json(document(outputs=[{"name": "y"}] * 9))

    assert "the model has no input 'z0'" in rejection(codecs(), more).message
    assert "an input is given twice" in rejection(codecs(), behind).message
    assert "an output is asked for twice" in rejection(codecs(), outputs).message


@pytest.mark.parametrize(
    ("datatype", "contents", "expected"),
    [
        ("INT8", field(2, b"\5\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\x7f"), [5, -1, 127]),
        ("INT8", b"\x10\5\x10\6\x10\7", [5, 6, 7]),
        ("INT32", field(2, b"\xff\xff\xff\xff\x0f\0\1"), [-1, 0, 1]),
        ("UINT16", field(4, b"\xff\xff\3\x80\1\0"), [65535, 128, 0]),
        ("INT64", field(3, b"\1") + field(3, b"\2\3"), [1, 2, 3]),
        ("BOOL", field(1, b"\1\0\5"), [True, False, True]),
        ("BOOL", field(1, b"\1\0\1"), [True, False, True]),
        ("FP32", b"\x35\0\0\x80\x3f" * 3, [1.0, 1.0, 1.0]),
        ("FP32", field(6, floats(*range(40))), [*range(40)]),
    ],
)
def test_contents_may_be_packed_or_not_and_come_in_parts(datatype: str, contents: bytes, expected: list[Any]) -> None:
    """Any other server's parser takes them too."""
    many = len(expected)
    whole = in_protobuf(field(5, an_input(datatype, many, field(5, contents))))
    parts = in_protobuf(field(5, an_input(datatype, many, field(5, b""), field(5, contents))))
    spec = TensorSpec("x", datatype, ())

    for given in (whole, parts):
        decoded = request(codecs(taking(datatype, None)), given)
        assert elements(decoded.tensors[0], spec.dtype.str) == expected


@pytest.mark.parametrize(
    ("datatype", "contents", "said"),
    [
        ("INT8", field(2, b"\1\2"), "the shape holds 3 elements, int_contents has 2"),
        ("INT8", field(2, b"\1\2\x80\1\3"), "the shape holds 3 elements, int_contents has 4"),
        ("INT8", field(2, b"\1\2\x80\1"), "an element is out of the range of INT8"),
        ("INT8", b"\x10\5\x10\6\x10\x80\1", "an element is out of the range of INT8"),
        ("INT8", field(2, b"\1\2" + b"\xff" * 11 + b"\1"), "the value is no inference.ModelInferRequest"),
    ],
)
def test_packed_contents_are_strict(datatype: str, contents: bytes, said: str) -> None:
    """The count must match, and each element must be in range."""
    message = rejection(
        codecs(taking(datatype)), in_protobuf(field(5, an_input(datatype, 3, field(5, contents))))
    ).message

    assert said in message


def test_a_name_of_a_megabyte_is_not_written_out() -> None:
    """The message shows at most a line of the value."""
    value = field(1, b"\x01" * 100_000)

    refused = rejection(codecs(), in_protobuf(value + field(5, an_input("FP32", 3)) + field(7, floats(1, 2, 3))))

    assert len(refused.message) < 300
