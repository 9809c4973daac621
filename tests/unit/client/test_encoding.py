"""A caller's input as bytes, an answer's outputs as arrays, and the refusal of wrong input before it is sent."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

from inference_client import binary_data, encoding
from inference_client.binary_data import HEAD_LENGTH
from inference_client.encoding import Encoded, Encoder
from inference_client.errors import InferenceError, Internal, InvalidArgument
from inference_client.signature import DTYPES, Signature
from tests.unit.client.builders import ROW, SIGNATURE, Record


def signature(inputs: list[tuple[str, str, list[int]]], outputs: list[tuple[str, str, list[int]]]) -> Signature:
    sides = {"inputs": inputs, "outputs": outputs}
    return Signature.of(
        {side: [dict(zip(("name", "datatype", "shape"), one, strict=True)) for one in of] for side, of in sides.items()}
    )


def head(encoded: Encoded) -> dict[str, Any]:
    """The JSON head of the binary-data form."""
    length = int(dict(encoded.headers)[HEAD_LENGTH])
    found: dict[str, Any] = orjson.loads(encoded.value[:length])
    return found


def answer(outputs: dict[str, np.ndarray], datatypes: list[str]) -> tuple[dict[str, bytes], bytes]:
    """An answer in the binary-data form: headers and value."""
    described = [
        {"name": n, "shape": a.shape, "datatype": t, "parameters": {"binary_data_size": a.nbytes}}
        for (n, a), t in zip(outputs.items(), datatypes, strict=True)
    ]
    text = json.dumps({"model_name": "m", "outputs": described}).encode()
    value = text + b"".join(array.tobytes() for array in outputs.values())
    return {"status": b"ok", HEAD_LENGTH: b"%d" % len(text)}, value


def test_rows_of_the_only_input_say_all() -> None:
    """The signature gives the headers. A bare array stands for the only input, and one row needs no batch dimension."""
    encoder = Encoder(SIGNATURE)

    forms = [encoder.encode(given) for given in ({"x": ROW}, ROW, {"x": ROW[0]}, {"x": [1, 2, 3]}, [[1.0, 2.0, 3.0]])]

    stated = ("content-type", b"application/octet-stream"), ("datatype", b"FP32"), ("rows", b"1")
    assert forms == [Encoded(ROW.tobytes(), stated)] * 5
    assert dict(encoder.encode(np.zeros((7, 3), "f4")).headers)["rows"] == b"7"


def test_without_a_signature_each_tensor_says_what_it_is() -> None:
    """The client uses the binary-data form."""
    encoded = Encoder(None).encode({"x": ROW, "n": np.array([7], ">i2")})

    assert head(encoded)["inputs"] == [
        {"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}},
        {"name": "n", "shape": [1], "datatype": "INT16", "parameters": {"binary_data_size": 2}},
    ]
    assert encoded.value.endswith(ROW.tobytes() + b"\x07\x00")


@pytest.mark.parametrize(
    ("given", "datatype"),
    [([[1.5]], "FP32"), ([[1]], "INT64"), ([[True]], "BOOL"), ([["ä"]], "BYTES"), (np.array([[1.5]]), "FP64")],
)
def test_without_a_signature_a_list_is_what_most_models_take(given: Any, datatype: str) -> None:
    """The worker refuses a wrong guess; numpy arrays keep their type."""
    assert head(Encoder(None).encode({"x": given}))["inputs"][0]["datatype"] == datatype


@pytest.mark.parametrize("datatype", [name for name in DTYPES if name != "BYTES"])
def test_every_datatype_comes_back_as_it_went(datatype: str) -> None:
    """This holds with a signature, without one, and in an answer's rows and binary-data form."""
    array = np.array([[1, 0, 1]], DTYPES[datatype])
    known = signature([("x", datatype, [-1, 3])], [("y", datatype, [-1, 3])])

    assert Encoder(known).encode({"x": array}).value == array.tobytes()
    assert head(Encoder(None).encode({"x": array}))["inputs"][0]["datatype"] == datatype
    for found in (
        Encoder(known).decode({"status": b"ok"}, array.tobytes()),
        Encoder(None).decode(*answer({"y": array}, [datatype])),
    ):
        assert isinstance(found, dict)
        assert found["y"].dtype == array.dtype
        assert found["y"].tolist() == array.tolist()


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"datatype": b"FP64", "rows": b"1"}, "1 rows of FP64 came, by the signature they are 2 of FP32"),
        ({"datatype": b"FP32", "rows": b"1"}, "1 rows of FP32 came, by the signature they are 2 of FP32"),
        ({"rows": b"2"}, "2 rows of ? came, by the signature they are 2 of FP32"),
    ],
)
def test_rows_that_say_that_they_are_others_are_not_read(stated: dict[str, bytes], said: str) -> None:
    """After a model swap, answers may have another type, or one row with the length of two."""
    found = Encoder(SIGNATURE).decode({"status": b"ok", "source": b"r/0/1", **stated}, np.zeros(4, "f4").tobytes())

    assert isinstance(found, Internal)
    assert said in str(found)


def test_rows_that_say_what_the_signature_says_are_read() -> None:
    """Rows without headers, from an older worker, are read too."""
    row = np.ones((1, 2), "f4")

    says = {"datatype": b"FP32", "rows": b"1"}

    for stated in ({}, says, {"content-type": b"application/octet-stream", **says}):
        found = Encoder(SIGNATURE).decode({"status": b"ok", **stated}, row.tobytes())
        assert isinstance(found, dict), found
        assert found["y"].tolist() == [[1, 1]]


def test_strings_travel_with_their_lengths() -> None:
    """Requests and answers carry them as UTF-8."""
    texts = signature([("text", "BYTES", [-1])], [("label", "BYTES", [-1])])
    encoded = Encoder(texts).encode({"text": ["grüße", ""]})
    raw = b"\x07\0\0\0" + "grüße".encode() + b"\0\0\0\0"

    assert encoded.value.endswith(raw)
    assert head(encoded)["inputs"][0] == {
        "name": "text",
        "shape": [2],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(raw)},
    }
    headers, value = answer({"label": np.frombuffer(raw, "u1")}, ["BYTES"])
    value = value.replace(b'"shape": [15]', b'"shape": [2] ')
    found = Encoder(texts).decode(headers, value)
    assert isinstance(found, dict), found
    assert found["label"].tolist() == ["grüße", ""]
    assert Encoder(texts).encode({"text": np.array([b"a"], "S1")}).value.endswith(b"\x01\0\0\0a")


def test_an_answer_of_several_outputs_has_all_of_them() -> None:
    """This holds for requests as rows, too: a model with one input and two outputs answers with a head."""
    two = Encoder(signature([("x", "FP32", [-1, 3])], [("y", "FP32", [-1, 2]), ("n", "INT64", [-1])]))
    assert two.encode({"x": ROW}).value == ROW.tobytes()

    found = two.decode(*answer({"y": ROW[:, :2], "n": np.array([5])}, ["FP32", "INT64"]))

    assert isinstance(found, dict)
    assert {name: array.tolist() for name, array in found.items()} == {"y": [[1, 2]], "n": [5]}


def test_rows_are_not_used_where_they_do_not_say_all() -> None:
    """A dynamic dimension of the input or of the only output rules them out, and so do several inputs."""
    for known in (
        signature([("x", "FP32", [-1, -1])], [("y", "FP32", [-1, 2])]),
        signature([("x", "FP32", [-1, 3])], [("y", "FP32", [-1, -1])]),
        signature([("x", "FP32", [-1, 3]), ("z", "FP32", [-1])], [("y", "FP32", [-1, 2])]),
    ):
        assert head(Encoder(known).encode({"x": ROW}))["inputs"][0]["shape"] == [1, 3]
    with pytest.raises(InvalidArgument, match=r"for each input; the model takes x FP32\[-1, 3\], z FP32\[-1\]"):
        Encoder(known).encode(ROW)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"x": ROW.astype("f8")}, r"expected FP32, got FP64; if that is meant, \.astype\('f4'\)"),
        ({"x": np.array([[1j]])}, "expected FP32, got complex128"),
        ({"x": [[True, False, True]]}, "expected FP32, got bool"),
        ({"x": [["a", "b", "c"]]}, "expected FP32, got <U1"),
        ({"x": [[1, 2], [3]]}, "its lists are not equally long: pad them, or send"),
        ({"x": [[1, None, 3.0]]}, r"expected numbers, got None; float\('nan'\) is a missing one"),
        ({"x": ROW[:, :2]}, r"expected \[-1, 3\], got \[1, 2\]"),
        ({"x": ROW[None]}, r"expected \[-1, 3\], got \[1, 1, 3\]"),
        ({"x": np.zeros((0, 3), "f4")}, "at least one"),
        ({"z": ROW}, r"the model has no input 'z'; it takes x FP32\[-1, 3\]"),
        ({}, "at least one input"),
    ],
)
def test_what_the_model_does_not_take_is_refused_before_it_is_sent(given: Any, why: str) -> None:
    """The error says what was expected, and what came."""
    with pytest.raises(InvalidArgument, match=why):
        Encoder(SIGNATURE).encode(given)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"x": np.array([1j])}, "no tensor of complex128"),
        ({"x": 1.0}, "expected rows, got a single value"),
        ({"x": ROW, "z": np.zeros((2, 1))}, r"same number of rows in each input, at least one, got \[1, 2\]"),
        ({"x": [object()]}, "expected strings, got object"),
        ({"x": [[1, 2], [3]]}, "its lists are not equally long: pad them, or send"),
        ({"x": [[1, None, 3.0]]}, r"expected numbers, got None; float\('nan'\) is a missing one"),
        (ROW, r"give \{name: tensor\} for each input; without a signature no input's name is known"),
    ],
)
def test_without_a_signature_what_is_no_request_is_refused(given: Any, why: str) -> None:
    """The worker judges the rest."""
    with pytest.raises(InvalidArgument, match=why):
        Encoder(None).encode(given)


@pytest.mark.parametrize("known", [None, signature([("x", "BYTES", [-1])], [("y", "FP32", [-1])])])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["a", None], "expected strings, got NoneType"),
        (["a", float("nan")], "expected strings, got float"),
        (["a", 1], "expected strings, got int"),
        (["a", True], "expected strings, got bool"),
        (np.array(["a", None], object), "expected strings, got NoneType"),
        (["\ud800"], "a string has no form in UTF-8"),
    ],
)
def test_what_is_no_string_is_not_made_one(known: Signature | None, given: Any, why: str) -> None:
    """A missing text, NaN in pandas' lists, would be sent as `nan`."""
    with pytest.raises(InvalidArgument, match=why):
        Encoder(known).encode({"x": given})


@pytest.mark.parametrize("given", [["a\0", "é"], [b"a\0", "é"], np.array(["a\0", "é"], np.dtypes.StringDType())])
def test_strings_are_sent_whole(given: Any) -> None:
    """A trailing NUL, which numpy's fixed strings drop, is kept; numpy's own strings are sent, too."""
    assert Encoder(None).encode({"x": given}).value.endswith(b"\2\0\0\0a\0\2\0\0\0" + "é".encode())


@pytest.mark.parametrize("known", [SIGNATURE, None])
def test_what_is_masked_is_not_sent(known: Signature | None) -> None:
    """A masked element holds an arbitrary number. A mask that hides nothing changes nothing."""
    whole = np.ma.masked_array(ROW, mask=False)

    assert Encoder(known).encode({"x": whole}) == Encoder(known).encode({"x": ROW})
    with pytest.raises(InvalidArgument, match=r"input x: some elements are masked; give them a value, \.filled\("):
        Encoder(known).encode({"x": np.ma.masked_greater(whole, whole.min())})


@pytest.mark.parametrize(
    ("known", "headers", "value"),
    [
        (None, {HEAD_LENGTH: b"x"}, b""),
        (None, {HEAD_LENGTH: b"2"}, b"{}"),
        (None, {HEAD_LENGTH: b"2"}, b"[]"),
        (None, {}, b"12345678"),
        (SIGNATURE, {"content-type": b"application/json"}, b'{"y":1}!'),
        (SIGNATURE, {}, b""),
        (SIGNATURE, {"rows": b"0", "datatype": b"FP32"}, b""),
    ],
)
def test_an_answer_that_cannot_be_read_says_so(
    known: Signature | None, headers: dict[str, bytes], value: bytes
) -> None:
    """Rows need a signature. Eight bytes of JSON would be two numbers, and an empty answer has no row."""
    assert isinstance(Encoder(known).decode({"status": b"ok", **headers}, value), Internal)


def test_a_record_without_a_status_is_no_answer() -> None:
    """A dead letter, or a copied request, carries the request's id too."""
    found = Encoder(SIGNATURE).decode({"error-code": b"INTERNAL", "__dlq.errors.message": b"no"}, b'{"inputs": []}')

    assert isinstance(found, Internal)
    assert "no header status, so it is no answer: is the topic of answers the worker's response topic?" in found.message


def of_type(datatype: str) -> Encoder:
    """The encoder of a model that takes numbers of this type."""
    return Encoder(signature([("x", datatype, [-1])], [("y", "FP32", [-1])]))


@pytest.mark.parametrize(
    ("datatype", "given", "sent"),
    [
        ("UINT64", [2**64 - 1, 1], [2**64 - 1, 1]),
        ("INT8", [-128, 127], [-128, 127]),
        ("FP32", [3.4028235e38], [float(np.finfo("f4").max)]),  # as FP64 it is slightly above the largest FP32
        ("FP16", [65_510], [65_504]),
        ("FP32", [float("inf")], [float("inf")]),
    ],
)
def test_numbers_of_a_list_become_what_the_model_takes(datatype: str, given: list[float], sent: list[float]) -> None:
    """Integers of 64 bits stay integers, also next to small ones. The worker judges infinity itself."""
    found = np.frombuffer(of_type(datatype).encode({"x": given}).value, DTYPES[datatype])

    assert found.tolist() == sent


@pytest.mark.parametrize(
    ("datatype", "given", "why"),
    [
        ("UINT64", [2**63, -1], "got float64"),
        ("UINT64", [2**63, 0.5], "got float64"),
        ("UINT64", [2**64, 1], "got object"),
        ("INT8", [128], "range of INT8"),
        ("INT8", [1.5], "got float64"),
        ("INT8", [2**70], "expected INT8, got object"),
        ("FP32", [0.0, -1e300], "out of the range of FP32"),
        ("FP16", [1e300], "out of the range of FP16"),
        (None, [[2**63 + 5]], "out of the range of INT64"),
        (None, [[1e39]], "out of the range of FP32"),
    ],
)
def test_a_number_of_a_list_is_not_made_another(datatype: str | None, given: Any, why: str) -> None:
    """It would be cut, or sent as infinity or as a negative number."""
    encoder = Encoder(None) if datatype is None else of_type(datatype)

    with pytest.raises(InvalidArgument, match=why):
        encoder.encode({"x": given})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({}, "no metadata of a model"),
        ({"inputs": [{"name": "x"}], "outputs": []}, "no metadata of a model"),
        ({"inputs": 1, "outputs": []}, "no metadata of a model"),
        ({"inputs": [{"name": "x", "datatype": "F32", "shape": [-1]}], "outputs": []}, "F32 is no datatype; there are"),
    ],
)
def test_what_is_no_metadata_is_refused(wrong: dict[str, Any], why: str) -> None:
    """The error comes when the client is made."""
    with pytest.raises(ValueError, match=why):
        Signature.of(wrong)


@pytest.mark.parametrize(
    ("code", "stamp", "whose"),
    [
        (b"DEADLINE_EXCEEDED", (1, 60_000), "60.0 s behind the worker's"),
        (b"DEADLINE_EXCEEDED", (2, 60_000), "60.0 s behind the brokers'"),
        (b"DEADLINE_EXCEEDED", (1, 99), None),
        (b"DEADLINE_EXCEEDED", (1, -60_000), None),
        (b"INTERNAL", (1, 60_000), None),
    ],
)
def test_a_clock_that_is_behind_is_named_where_a_request_was_late(
    monkeypatch: pytest.MonkeyPatch, code: bytes, stamp: tuple[int, int], whose: str | None
) -> None:
    """An answer from the future shows it. The topic's timestamp type tells whose clock is ahead."""
    monkeypatch.setattr(encoding, "time", SimpleNamespace(time=lambda: 1_764_000_000.0))
    kind, ahead = stamp
    headers = [("status", b"error"), ("error-code", code)]

    found = Encoder(None).read(Record(headers, b'{"error":"no"}', stamp=(kind, 1_764_000_000_000 + ahead)))

    assert isinstance(found, InferenceError)
    assert "no" in found.message
    assert "clock" not in found.message if whose is None else whose in found.message


# An answer in the binary-data form that contradicts itself


def binary(*entries: tuple[str, str, Any, Any], tail: bytes, head_length: int | None = None) -> Any:
    """Decode an answer of these outputs: name, datatype, shape and size of each."""
    words = ("name", "datatype", "shape")
    described = [{**dict(zip(words, e, strict=False)), "parameters": {"binary_data_size": e[3]}} for e in entries]
    head = json.dumps({"outputs": described}).encode()
    length = len(head) if head_length is None else head_length
    return Encoder(None).decode({"status": b"ok", HEAD_LENGTH: b"%d" % length}, head + tail)


@pytest.mark.parametrize(
    ("entries", "tail"),
    [
        ([("s", "BYTES", [1], 4)], b"\xff\xff\xff\x7f"),
        ([("s", "BYTES", [1], 6)], b"\x03\0\0\0ab"),
        ([("s", "BYTES", [1], 6), ("n", "INT8", [2], 2)], b"\x04\0\0\0abcd"),
        ([("s", "BYTES", [2], 5)], b"\x01\0\0\0a"),
        ([("y", "FP32", [1], 5)], b"12345"),
        ([("y", "FP32", [-1], 8)], b"12345678"),
        ([("y", "FP32", [2], 4)], b"1234"),
        ([("y", "INT8", [True], 1)], b"1"),
        ([("a", "INT8", [4], 4), ("b", "BYTES", [0], -2)], b"12"),
        ([("y", "INT8", [1], 2**64 - 1)], b"1"),
        ([("y", "INT8", [1], 1)], b"12"),
        ([("a", "INT8", [1], 1), ("a", "INT8", [1], 1)], b"12"),
    ],
)
def test_an_answer_at_odds_with_itself_is_not_read(entries: list[tuple[str, str, Any, Any]], tail: bytes) -> None:
    """Unchecked, a string longer than the value would be empty, and the last of two outputs with one name would win."""
    assert isinstance(binary(*entries, tail=tail), Internal)


@pytest.mark.parametrize("length", [-1, 0, 10_000])
def test_a_head_as_long_as_no_answer_is_not_read(length: int) -> None:
    """Python counts a negative length from the end."""
    assert "a head of" in str(binary(("y", "INT8", [1], 1), tail=b"1", head_length=length))


def test_heads_that_are_remembered_are_bounded_in_bytes() -> None:
    """Other writers choose the length of heads: 200 long ones kept 1.2 GB."""
    keeps = binary_data._described
    keeps.cache_clear()

    for number in range(3):
        found = binary((f"{number}{'n' * binary_data._LONGEST_KNOWN}", "INT8", [1], 1), tail=b"1")
        assert isinstance(found, dict)
        assert isinstance(binary(("y", "INT8", [number], number), tail=b"1" * number), dict)

    assert keeps.cache_info().currsize == 3
    assert binary_data._KNOWN * binary_data._LONGEST_KNOWN <= 1024 * 1024
