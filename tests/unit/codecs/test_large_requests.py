"""Requests too large to be parsed as they are: what is more than a model can need is refused before it is built."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.judging import AS_PROTOBUF, field, varint
from tests.unit.codecs.builders import (
    AS_JSON,
    X,
    as_binary,
    as_json,
    codecs,
    document,
    elements,
    floats,
    model,
    record,
    rejection,
    request,
    taking,
    tensor,
)
from worker.codecs.encodings import oip_protobuf
from worker.codecs.registry import readable_id
from worker.codecs.request_headers import Envelopes
from worker.codecs.wire_contract import JSON
from worker.core.records import Record
from worker.core.tensors.specs import TensorSpec

MANY = 4000  # elements, of which JSON takes 8 KB and more
LONG = " " * 9000


def asking(datatype: str, data: Any, shape: tuple[int, ...] = (1, MANY), **more: Any) -> Record:
    return as_json({"inputs": [tensor(datatype=datatype, shape=shape, data=data)], **more})


def padded(text: str) -> Record:
    """With as much space between the brackets as makes it large."""
    return record(text.replace("~", LONG).encode(), AS_JSON)


@pytest.mark.parametrize(
    ("datatype", "numbers"),
    [
        ("INT8", [-128, 0, 1, 127]),
        ("INT64", [-(2**63), 0, 1, 2**63 - 1]),
        ("UINT64", [0, 1, 5, 2**64 - 1]),
        ("FP32", [0, 1, -0.5, 1e-40]),
        ("FP32", [0, 1, 2**24 + 1, -7]),
        ("FP64", [0, 1, 2**53 + 1, 2**64 - 1]),
        ("BOOL", [True, False, True, True]),
        ("BYTES", ["", "[{,", 'é"\\', "\1"]),
    ],
)
@pytest.mark.parametrize("many", [MANY, 20 * MANY])
def test_every_datatype_keeps_its_values(datatype: str, numbers: list[Any], many: int) -> None:
    """Whole or in chunks."""
    data = numbers * (many // 4)

    decoded = request(codecs(taking(datatype, None), max_request_bytes=2**22), asking(datatype, data, (1, many)))

    spec = TensorSpec("x", datatype, ())
    assert elements(decoded.tensors[0], spec.dtype.str.replace("|O", "O")) == np.array(data, spec.dtype).tolist()


@pytest.mark.parametrize("shape", [(2, 2000), (2000, 2), (1, 1, 4000), (4000, 1, 1), (1, 20, 200), (20, 1, 200)])
@pytest.mark.parametrize("layout", [{}, {"separators": (",", ":")}, {"indent": 1}])
def test_data_is_nested_as_the_shape_says(shape: tuple[int, ...], layout: dict[str, Any]) -> None:
    """However much space is between."""
    array = np.arange(4000).reshape(shape)
    held = {"inputs": [tensor(datatype="INT64", shape=shape, data=array.tolist())]}
    given = record(json.dumps(held, **layout).encode(), AS_JSON)

    decoded = request(codecs(model(TensorSpec("x", "INT64", (None,) * (len(shape) - 1)), max_rows=4000)), given)

    assert elements(decoded.tensors[0], "<i8") == list(range(4000))


def test_strings_may_be_nested_too_and_full_of_brackets() -> None:
    """An array for each of them is no more than a model can need."""
    given = asking("BYTES", [["[[[[{{{{,,,,"]] * 1000, (1000, 1))

    decoded = request(codecs(model(TensorSpec("x", "BYTES", (1,)), max_rows=1000)), given)

    assert elements(decoded.tensors[0], "O") == ["[[[[{{{{,,,,"] * 1000


TEXT_AND_NUMBERS = model(TensorSpec("x", "BYTES", (None,)), TensorSpec("n", "INT64", (None,)))


@pytest.mark.parametrize(
    ("datatype", "text", "said"),
    [
        ("FP32", "[1, 2,~3, 4]", "shape [1, 3] holds 3 elements, got 4"),
        ("FP32", "[1,~2]", "shape [1, 3] holds 3 elements, got 2"),
        ("FP32", "[1,~2,]", "`data` is not JSON"),
        ("FP32", "[1,~2 3, 4]", "`data` is not JSON"),
        ("FP32", "[~]", "holds 3 elements, got 1"),
        ("FP32", "[[1, 2],~[3]]", "`data` is not nested as shape [1, 3] says"),
        ("FP32", "[[[1], [2],~[3]]]", "`data` is not nested as shape [1, 3] says"),
        ("FP32", "[1[,2,~3]]", "`data` is not nested as shape [1, 3] says"),
        ("FP32", "[5~[1,2,3]6]", "`data` is not nested as shape [1, 3] says"),
        ("FP32", "[1, true,~3]", "got a boolean among them"),
        ("FP32", "[1, Infinity,~3]", "expected FP32 elements, got Infinity among them"),
        ("BOOL", "[true, -Infinity,~true]", "expected BOOL elements, got Infinity among them"),
        ("FP32", "[1, NaN,~3]", "`data` is not JSON: JSON has no NaN"),
        ("FP32", "[1, null,~3]", "got null among them"),
        ("FP32", "[1, 1e39,~3]", "out of the range of FP32"),
        ("INT8", "[1, 2.5,~3]", "got a fraction among them"),
        ("INT8", "[1, 300,~3]", "out of the range of INT8"),
        ("INT64", "[1, 99999999999999999999,~3]", "out of the range of INT64"),
        ("BOOL", "[true, 0,~true]", "got a number among them"),
        ("BYTES", "[1, 2,~3]", "expected BYTES elements, got an array without strings"),
        ("FP16", "[1, 2,~3]", "FP16 is taken only as bytes"),
    ],
)
def test_elements_are_strict(datatype: str, text: str, said: str) -> None:
    """As in a small request."""
    given = f'{{"inputs": [{{"name": "x", "shape": [1, 3], "datatype": "{datatype}", "data": {text}}}]}}'

    assert said in rejection(codecs(taking(datatype)), padded(given)).message


@pytest.mark.parametrize(
    "text", ["[[1], [2], [3]]", "[[1]5, [2], [3]]", "[5[1], [2], [3]]", "[1[], [2], [3]]", "[[1], [2], []3]"]
)
def test_no_number_stands_outside_of_its_array(text: str) -> None:
    """Only the first is nested."""
    given = f'{{"inputs": [{{"name": "x", "shape": [3, 1], "datatype": "FP32", "data": ~{text}}}]}}'
    codec = codecs(taking("FP32", 1))

    decoded = codec.decode(padded(given.replace("~", "[" + LONG, 1).replace("[" + LONG + "[", "[" + LONG)))

    assert (type(decoded).__name__ == "Request") is (text == "[[1], [2], [3]]")


@pytest.mark.parametrize(
    ("count", "elements_there", "said"),
    [
        (16385, b"1," * 16385, "an element of `data` is missing"),  # the last comma ends a chunk
        (20_000, b"1," * 30_000 + b"1", "shape [1, 20000] holds 20000 elements, got 30001"),
        (30_000, b"1, " * 20_000 + b"1", "shape [1, 30000] holds 30000 elements, got 20001"),
    ],
)
def test_elements_are_counted_over_all_chunks(count: int, elements_there: bytes, said: str) -> None:
    """None is missing, and none too many."""
    value = b'{"inputs":[{"name":"x","shape":[1,%d],"datatype":"INT8","data":[%b]}]}' % (count, elements_there)

    assert said in rejection(codecs(taking("INT8", None)), record(value, AS_JSON)).message


def test_numbers_are_not_looked_at_where_they_mean_nothing() -> None:
    """A member that is not named in the contract is passed over; of two the last counts."""
    right = '{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}'
    other = f'{{"a": {{"data": [{LONG}1]}}, "inputs": [{right}]}}'
    twice = (
        f'{{"inputs": [{{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [9{LONG}], "data": [1, 2, 3]}}]}}'
    )

    for given in (other, twice):
        assert elements(request(codecs(), record(given.encode(), AS_JSON)).tensors[0], "<f4") == [1, 2, 3]


@pytest.mark.parametrize("control", ["\1", "\2", "\1\2", "\20"])
def test_a_string_may_have_any_character_beside_many_numbers(control: str) -> None:
    """Fields of FIX messages end with the first of those that stand for numbers."""
    n = {"name": "n", "shape": [1, MANY], "datatype": "INT64", "data": [7] * MANY}
    x = tensor(datatype="BYTES", shape=(1, 1), data=[f"8=FIX.4.4{control}9=12{control}"])

    text, numbers = request(codecs(TEXT_AND_NUMBERS), as_json({"inputs": [n, x]})).tensors

    assert elements(text, "O") == [f"8=FIX.4.4{control}9=12{control}"]
    assert elements(numbers, "<i8") == [7] * MANY


@pytest.mark.parametrize(
    "passed_over",
    [
        '"parameters": {"data": [[1], "a"]}',
        '"parameters": {"data": [[1], "a\\"", 2]}',
        '"parameters": {"data": [[1], {}]}',
        '"parameters": {"data": [1, {"data": [2]}]}',
        '"parameters": {"a": {"data": [1]}, "b": {"data": [2]}, "c": {"data": [3]}}',
    ],
)
def test_what_is_passed_over_may_be_named_as_the_numbers_are(passed_over: str) -> None:
    """And may hold strings and objects."""
    numbers = '{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2,~3]}'

    decoded = request(codecs(), padded(f'{{{passed_over}, "inputs": [{numbers}]}}'))

    assert elements(decoded.tensors[0], "<f4") == [1, 2, 3]


def test_a_string_with_all_that_may_stand_for_numbers_is_refused_beside_many() -> None:
    """By its length, as what else is more than a request needs. The binary-data form takes any string."""
    given = as_json({"inputs": [tensor(shape=(1, 3), data=[1.0] * MANY)], "id": "\1\2\20"})

    assert "of the JSON are something else" in rejection(codecs(), given).message


def test_a_string_is_not_taken_for_numbers() -> None:
    """Whatever it looks like."""
    numbers = f'{{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, {LONG}3]}}'
    forged = f'{{"inputs": [{numbers}, {{"name": "y", "shape": [1], "datatype": "FP32", "data": "\\u00010"}}]}}'
    said = f'{{"inputs": [{numbers}, {{"name": "y", "shape": [1], "datatype": "FP32", "data": "text"}}]}}'
    two = model(X, TensorSpec("y", "FP32", ()))

    for given in (forged, said):
        message = rejection(codecs(two), record(given.encode(), AS_JSON)).message
        assert "of the JSON are something else" in message or "expected `data` to be an array" in message


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            b'{"inputs": [' + b"[]," * 9000 + b"0]}",
            "bytes of the JSON are something else than the numbers of an input's `data`",
        ),
        (b'{"inputs": [' + b'{"data": [1]},' * 9000 + b"{}]}", "bytes of the JSON are something else"),
        (
            b'{"inputs": [{"data": [' + b"0.5," * 9000 + b'"NaN"]}]}',
            "; so is all of a `data` that is, or has in it, a string",
        ),
        (
            b'{"inputs": [{"data": "' + b"AACA" * 9000 + b'"}]}',
            "; so is all of a `data` that is, or has in it, a string",
        ),
        (b'{"inputs": [{"data": {' + b'"0":0.5,' * 9000 + b'"1":2}}]}', "a string or an object"),
        (b"\0\1" * 9000, "the value is not a JSON object with `inputs`: it begins with b'\\x00\\x01"),
        (b"[" + b"1," * 9000 + b"1]", "the value is not a JSON object with `inputs`: it begins with b'[1,1"),
        (b'{"data": [1]' + b" " * 2000 + b",}", "the value is not JSON: "),
        (b'{"data": [1' + b" " * 9000 + b'],"a"', "bytes of the JSON are something else"),
        (b'{"data": [1' + b" " * 9000 + b'],"a":', "the value is not JSON: "),
        (b'{"data": [1' + b" " * 2000, "the value is not JSON: "),
    ],
)
def test_what_is_no_request_is_refused(value: bytes, said: str) -> None:
    """By its length where it is long, by its syntax where it is short."""
    assert said in rejection(codecs(), record(value, AS_JSON)).message


def test_a_model_of_strings_is_asked_for_no_more_than_strings() -> None:
    """What has no string in it is refused like any other; the message says what is taken."""
    value = b'{"inputs": [' + b"{}," * 9000 + b"0]}"

    assert (
        "unless they are strings, flat or each in an array of its own"
        in rejection(codecs(taking("BYTES", None)), record(value, AS_JSON)).message
    )


def test_of_more_inputs_and_outputs_than_the_model_has_the_first_wrong_one_is_named() -> None:
    """However many there are; also in the binary-data form, whose sizes are not added up then."""
    more = as_json({"inputs": [tensor(), *[tensor(name=f"z{at}") for at in range(20)]]})
    sized = tensor(parameters={"binary_data_size": 12})
    behind = as_binary({"inputs": [sized] * 3}, floats(1, 2, 3) * 3)
    outputs = as_json(document(outputs=[{"name": "y"}] * 9))

    assert "the model has no input 'z0'" in rejection(codecs(), more).message
    assert "an input is given twice" in rejection(codecs(), behind).message
    assert "an output is asked for twice" in rejection(codecs(), outputs).message


# Protobuf


def in_protobuf(value: bytes) -> Record:
    return record(value, AS_PROTOBUF)


def an_input(datatype: str, count: int, *more: bytes) -> bytes:
    return field(1, b"x") + field(2, datatype.encode()) + field(3, b"\1" + varint(count)) + b"".join(more)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\x2a\0" * 9000, "over 69 fields in a message: no request to this model needs so many"),
        (b"\x32\0" * 9000, "over 69 fields"),
        (b"\x7b\x7c" * 9000, "over 69 fields"),
        (field(5, b"\x18\1" * 9000), "over 64 fields"),
        (field(5, field(3, b"\1" * 20_000)), "a shape takes 20000 bytes: at most 8 dimensions are possible"),
        (field(5, field(3, b"\1" * 9)), "the model has no input ''"),
        (field(5, an_input("FP32", 3, field(3, b"\1" * 9000))), "9002 dimensions, at most 8 are possible"),
        (field(9, bytes(20_000)) + b"\x2f", "the value is no inference.ModelInferRequest"),
        (field(9, bytes(20_000)) + b"\xff" * 20, "the value is no inference.ModelInferRequest"),
        (field(5, an_input("FP32", 3, field(5, b"") * 17)), "its contents come in 17 parts, at most 16 are read"),
        (
            field(5, an_input("FP32", 3, field(5, b"\x35\0\0\0\0" * 3000))),
            "expected 3 elements in fp32_contents, packed",
        ),
        (field(5, an_input("FP32", 3, field(5, b"\x32\xff"))), "its contents are no inference.InferTensorContents"),
        (
            field(5, an_input("FP32", 3, field(5, field(6, bytes(13))))),
            "its contents are no inference.InferTensorContents",
        ),
    ],
)
def test_protobuf_is_counted_before_it_is_parsed(value: bytes, said: str) -> None:
    """Fields, dimensions, parts, and elements that are not packed."""
    assert said in rejection(codecs(), in_protobuf(value)).message


def test_fields_that_mean_nothing_are_passed_over() -> None:
    """Parameters, groups, and numbers of every width, beside a large tensor."""
    beside = field(4, field(1, b"key")) + b"\x7b\x7c" + b"\x79" + bytes(8) + b"\x7d" + bytes(4) + b"\x78\xff\1"
    inner = an_input("FP32", 6000, field(4, b""), field(5, field(6, bytes(24_000))))

    decoded = request(codecs(taking("FP32", None)), in_protobuf(beside + field(5, inner)))

    assert decoded.tensors == (bytes(24_000),)


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
    ],
)
def test_contents_may_be_packed_or_not_and_come_in_parts(datatype: str, contents: bytes, expected: list[Any]) -> None:
    """As the parser of any other server would take them."""
    whole = in_protobuf(field(5, an_input(datatype, 3, field(5, contents))))
    parts = in_protobuf(field(5, an_input(datatype, 3, field(5, contents[:0]), field(5, contents))))
    spec = TensorSpec("x", datatype, ())

    for given in (whole, parts):
        decoded = request(codecs(taking(datatype)), given)
        assert np.frombuffer(decoded.tensors[0], spec.dtype).tolist() == expected


@pytest.mark.parametrize(
    "parts",
    [
        (field(6, bytes(12))[:3], field(6, bytes(12))[3:]),
        (b"\x32\x8c\x80\x80\x80\x80\x80\0" + bytes(12),),
    ],
    ids=["cut in two", "a length of eight bytes"],
)
def test_contents_that_no_parser_takes_are_refused(parts: tuple[bytes, ...]) -> None:
    """Each part is a message of its own."""
    given = in_protobuf(field(5, an_input("FP32", 3, *[field(5, part) for part in parts])))

    assert "its contents are no inference.InferTensorContents" in rejection(codecs(), given).message


@pytest.mark.parametrize(
    ("datatype", "contents", "said"),
    [
        ("INT8", field(2, b"\1\2"), "the shape holds 3 elements, int_contents has 2"),
        ("INT8", field(2, b"\1\2\x80\1\3"), "the shape holds 3 elements, int_contents has 4"),
        ("INT8", field(2, b"\1\2\x80\1"), "an element is out of the range of INT8"),
        ("INT8", b"\x10\5\x10\6\x10\x80\1", "an element is out of the range of INT8"),
        ("INT8", field(2, b"\1\2\3" + b"\xff" * 20_000), "its contents are no inference.InferTensorContents"),
        ("INT8", field(2, b"\1\2" + b"\xff" * 11 + b"\1"), "its contents are no inference.InferTensorContents"),
        ("FP32", field(6, bytes(8)), "the shape holds 3 elements, fp32_contents has 2"),
        ("BOOL", field(1, b"\1\1"), "the shape holds 3 elements, bool_contents has 2"),
        ("FP16", field(0, bytes(6)), "its contents are no inference.InferTensorContents"),
    ],
)
def test_packed_contents_are_strict(datatype: str, contents: bytes, said: str) -> None:
    """Count and range are known from the bytes."""
    message = rejection(
        codecs(taking(datatype)), in_protobuf(field(5, an_input(datatype, 3, field(5, contents))))
    ).message

    assert said in message or "packed, in range and nothing beside" in message


COLUMNS = model(*[TensorSpec(f"column_{at}", "FP32", (1,)) for at in range(500)])


@pytest.mark.parametrize("more", [None, [[]] * 3000, [{}] * 1500, [""] * 13_000, "a" * 20_000])
def test_an_input_for_each_column_is_read_like_any(more: Any) -> None:
    """In one go where little else is in it; apart from its numbers where there is, or where it is long."""
    inputs = [
        {"name": s.name, "shape": [1, 1], "datatype": "FP32", "data": [at]} for at, s in enumerate(COLUMNS.inputs)
    ]

    decoded = request(codecs(COLUMNS), as_json({"inputs": inputs, "more": more}))

    assert [elements(tensor, "<f4") for tensor in decoded.tensors] == [[at] for at in range(500)]


def test_what_is_read_is_a_part_of_the_contract() -> None:
    """Each field of a request that is read is one of `inference.proto`, of the same number and kind on the wire."""
    whole, read = oip_protobuf._InferRequest.DESCRIPTOR, oip_protobuf._Asked.DESCRIPTOR

    assert {f.name: f.number for f in read.fields} == {f.name: f.number for f in whole.fields}
    for name in ("inputs", "outputs"):
        ours, theirs = read.fields_by_name[name].message_type, whole.fields_by_name[name].message_type
        assert {f.name: f.number for f in ours.fields} == {f.name: f.number for f in theirs.fields}


def test_a_name_of_a_megabyte_is_not_written_out() -> None:
    """Of what came, a line is shown."""
    value = field(1, b"\x01" * 100_000)

    refused = rejection(codecs(), in_protobuf(value + field(5, an_input("FP32", 3)) + field(7, floats(1, 2, 3))))

    assert len(refused.message) < 300


def test_an_id_is_read_whatever_the_model() -> None:
    """For a replay, which knows none."""
    envelope = Envelopes(JSON).read([AS_JSON])

    assert readable_id(b'{"id": "i", "inputs": [' + b"{}," * 40 + b"{}]}", envelope) == "i"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[1, 2],~[3]]", "`data` is not nested as shape [2, 2] says"),
        ("[[1, 2, 3],~[4]]", "`data` is not nested as shape [2, 2] says"),
        ("[[1, 2],~[3, 4],]", "`data` is not nested as shape [2, 2] says"),
        ("[[1, 2],~[3, 4 5]]", "`data` is not JSON"),
    ],
)
def test_rows_are_as_long_as_the_shape_says(text: str, said: str) -> None:
    """Each of them."""
    given = f'{{"inputs": [{{"name": "x", "shape": [2, 2], "datatype": "INT8", "data": {text}}}]}}'

    assert said in rejection(codecs(taking("INT8", 2)), padded(given)).message
