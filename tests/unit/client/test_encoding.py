"""What a caller gives, as bytes; what an answer holds, as arrays; and what is refused before it is sent."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest

from inference_client.binary_data import HEAD_LENGTH
from inference_client.encoding import Encoded, Encoder
from inference_client.errors import Internal, InvalidArgument
from inference_client.signature import DTYPES, Signature, signature_of
from tests.unit.client.builders import METADATA, ROW, SIGNATURE


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
    """An answer in the binary-data form."""
    described = [
        {"name": n, "shape": a.shape, "datatype": t, "parameters": {"binary_data_size": a.nbytes}}
        for (n, a), t in zip(outputs.items(), datatypes, strict=True)
    ]
    text = json.dumps({"model_name": "m", "outputs": described}).encode()
    value = text + b"".join(array.tobytes() for array in outputs.values())
    return {"status": b"ok", HEAD_LENGTH: b"%d" % len(text)}, value


def test_rows_of_the_only_input_say_all() -> None:
    """With their headers, with a signature; an array alone stands for that input, and one row needs no dimension."""
    encoder = Encoder(SIGNATURE)

    forms = [encoder.encode(given) for given in ({"x": ROW}, ROW, {"x": ROW[0]}, {"x": [1, 2, 3]}, [[1.0, 2.0, 3.0]])]

    stated = ("content-type", b"application/octet-stream"), ("datatype", b"FP32"), ("rows", b"1")
    assert forms == [Encoded(ROW.tobytes(), stated)] * 5
    assert dict(encoder.encode(np.zeros((7, 3), "f4")).headers)["rows"] == b"7"


def test_without_a_signature_each_tensor_says_what_it_is() -> None:
    """In the binary-data form."""
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
    """The worker refuses it where that is wrong; numpy's numbers are what they are."""
    assert head(Encoder(None).encode({"x": given}))["inputs"][0]["datatype"] == datatype


@pytest.mark.parametrize("datatype", [name for name in DTYPES if name != "BYTES"])
def test_every_datatype_comes_back_as_it_went(datatype: str) -> None:
    """With a signature, without one, and in an answer's rows and binary-data form."""
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
    """A model that was exchanged may answer with another type, or with one row as long as two."""
    found = Encoder(SIGNATURE).decode({"status": b"ok", "source": b"r/0/1", **stated}, np.zeros(4, "f4").tobytes())

    assert isinstance(found, Internal)
    assert said in str(found)


def test_rows_that_say_what_the_signature_says_are_read() -> None:
    """As those that say nothing, an older worker's."""
    row = np.ones((1, 2), "f4")

    says = {"datatype": b"FP32", "rows": b"1"}

    for stated in ({}, says, {"content-type": b"application/octet-stream", **says}):
        found = Encoder(SIGNATURE).decode({"status": b"ok", **stated}, row.tobytes())
        assert isinstance(found, dict), found
        assert found["y"].tolist() == [[1, 1]]


def test_strings_travel_with_their_lengths() -> None:
    """Both ways, as UTF-8."""
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
    """Also to rows: a model with one input and two outputs is answered with a head."""
    two = Encoder(signature([("x", "FP32", [-1, 3])], [("y", "FP32", [-1, 2]), ("n", "INT64", [-1])]))
    assert two.encode({"x": ROW}).value == ROW.tobytes()

    found = two.decode(*answer({"y": ROW[:, :2], "n": np.array([5])}, ["FP32", "INT64"]))

    assert isinstance(found, dict)
    assert {name: array.tolist() for name, array in found.items()} == {"y": [[1, 2]], "n": [5]}


def test_rows_are_not_used_where_they_do_not_say_all() -> None:
    """A dimension that requests choose, of the input or of the only output; and several inputs."""
    for known in (
        signature([("x", "FP32", [-1, -1])], [("y", "FP32", [-1, 2])]),
        signature([("x", "FP32", [-1, 3])], [("y", "FP32", [-1, -1])]),
        signature([("x", "FP32", [-1, 3]), ("z", "FP32", [-1])], [("y", "FP32", [-1, 2])]),
    ):
        assert head(Encoder(known).encode({"x": ROW}))["inputs"][0]["shape"] == [1, 3]


class Odd:
    """An object that numpy asks for an array, and that raises instead."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise ValueError("not today")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"x": ROW.astype("f8")}, r"expected FP32, got FP64; if that is meant, \.astype\('f4'\)"),
        ({"x": np.array([[1j]])}, "expected FP32, got complex128"),
        ({"x": [[True, False, True]]}, "expected FP32, got bool"),
        ({"x": [["a", "b", "c"]]}, "expected FP32, got <U1"),
        ({"x": [[1, 2], [3]]}, "its lists are not equally long: pad them, or send"),
        ({"x": [[1, None, 3.0]]}, r"expected numbers, got None; float\('nan'\) is a missing one"),
        ({"x": Odd()}, "input x: not today"),
        ({"x": ROW[:, :2]}, r"expected \[-1, 3\], got \[1, 2\]"),
        ({"x": ROW[None]}, r"expected \[-1, 3\], got \[1, 1, 3\]"),
        ({"x": np.zeros((0, 3), "f4")}, "at least one"),
        ({"z": ROW}, r"the model has no input 'z'; it takes x FP32\[-1, 3\]"),
        ({}, "at least one input"),
    ],
)
def test_what_the_model_does_not_take_is_refused_before_it_is_sent(given: Any, why: str) -> None:
    """With what was expected and what came."""
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
    """The rest is the worker's to judge."""
    with pytest.raises(InvalidArgument, match=why):
        Encoder(None).encode(given)


def test_of_many_inputs_a_message_names_three() -> None:
    """And counts the others."""
    inputs = [{"name": f"c{at}", "datatype": "FP32", "shape": [-1, 1]} for at in range(500)]

    with pytest.raises(InvalidArgument, match=r"c0 FP32\[-1, 1\], c1 FP32\[-1, 1\], c2 FP32\[-1, 1\] and 497 more$"):
        Encoder(Signature.of({**METADATA, "inputs": inputs})).encode({"z": ROW})


def test_an_array_alone_is_refused_where_there_are_several_inputs() -> None:
    """With the names of all."""
    inputs = [{"name": name, "datatype": "FP32", "shape": [-1, 3]} for name in ("a", "b")]

    with pytest.raises(
        InvalidArgument, match=r"give \{name: tensor\} for each input; the model takes a FP32.*, b FP32"
    ):
        Encoder(Signature.of({**METADATA, "inputs": inputs})).encode(ROW)


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
    """Also a NUL that ends one, which numpy's fixed strings have not, and strings of numpy's own."""
    assert Encoder(None).encode({"x": given}).value.endswith(b"\2\0\0\0a\0\2\0\0\0" + "é".encode())


def test_integers_of_64_bits_stay_integers() -> None:
    """Also beside small ones, of which numpy makes floats together."""
    large = Encoder(signature([("x", "UINT64", [-1])], [("y", "UINT64", [-1])]))

    assert large.encode({"x": [2**64 - 1, 1]}).value == b"\xff" * 8 + b"\1" + bytes(7)
    for wrong, why in (([2**63, -1], "got float64"), ([2**63, 0.5], "got float64"), ([2**64, 1], "got object")):
        with pytest.raises(InvalidArgument, match=why):
            large.encode({"x": wrong})


def test_integers_are_not_cut() -> None:
    """A list's numbers become what the model takes only if they are just that."""
    small = Encoder(signature([("x", "INT8", [-1])], [("y", "INT8", [-1])]))

    assert small.encode({"x": [-128, 127]}).value == b"\x80\x7f"
    for wrong, why in (([128], "range of INT8"), ([1.5], "got float64"), ([2**70], "expected INT8, got object")):
        with pytest.raises(InvalidArgument, match=why):
            small.encode({"x": wrong})


@pytest.mark.parametrize("known", [SIGNATURE, None])
def test_what_is_masked_is_not_sent(known: Signature | None) -> None:
    """Under the mask of a missing value lies any number. A mask that hides nothing is no matter."""
    whole = np.ma.masked_array(ROW, mask=False)

    assert Encoder(known).encode({"x": whole}) == Encoder(known).encode({"x": ROW})
    with pytest.raises(InvalidArgument, match=r"input x: some elements are masked; give them a value, \.filled\("):
        Encoder(known).encode({"x": np.ma.masked_greater(whole, whole.min())})


@pytest.mark.parametrize("datatype", ["FP16", "FP32"])
def test_numbers_of_a_list_do_not_become_infinity(datatype: str) -> None:
    """Infinity itself is the worker's to judge."""
    encoder = Encoder(signature([("x", datatype, [-1])], [("y", "FP32", [-1])]))

    for wrong in ([1e300], [0.0, -1e300]):
        with pytest.raises(InvalidArgument, match=f"out of the range of {datatype}"):
            encoder.encode({"x": wrong})
    (infinity,) = np.frombuffer(encoder.encode({"x": [float("inf")]}).value, DTYPES[datatype])
    assert infinity == np.inf


@pytest.mark.parametrize(("given", "datatype"), [(3.4028235e38, "FP32"), (-3.4028235e38, "FP32"), (65_510, "FP16")])
def test_a_number_that_rounds_to_the_largest_one_is_that(given: float, datatype: str) -> None:
    """As FP32 its largest number is written 3.4028235e38, which read as FP64 lies a little above it."""
    encoder = Encoder(signature([("x", datatype, [-1])], [("y", "FP32", [-1])]))

    (found,) = np.frombuffer(encoder.encode({"x": [given]}).value, DTYPES[datatype])

    assert abs(found) == np.finfo(found.dtype).max


@pytest.mark.parametrize(("given", "datatype"), [([[2**63 + 5]], "INT64"), ([[1e39]], "FP32")])
def test_without_a_signature_a_number_of_a_list_is_not_made_another(given: Any, datatype: str) -> None:
    """It would be sent as a negative one, and as infinity; an array of its own type is sent as it is."""
    with pytest.raises(InvalidArgument, match=f"input x: out of the range of {datatype}"):
        Encoder(None).encode({"x": given})
    assert Encoder(None).encode({"x": np.array(given)}).value.endswith(np.array(given).tobytes())


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        ({HEAD_LENGTH: b"x"}, b""),
        ({HEAD_LENGTH: b"2"}, b"{}"),
        ({HEAD_LENGTH: b"2"}, b"[]"),
        ({}, b"12345678"),
    ],
)
def test_an_answer_that_cannot_be_read_says_so(headers: dict[str, bytes], value: bytes) -> None:
    """Rows without a signature, too."""
    assert isinstance(Encoder(None).decode({"status": b"ok", **headers}, value), Internal)


@pytest.mark.parametrize(
    ("headers", "value"),
    [({"content-type": b"application/json"}, b'{"y":1}!'), ({}, b""), ({"rows": b"0", "datatype": b"FP32"}, b"")],
)
def test_what_is_as_long_as_rows_and_no_rows_says_so(headers: dict[str, bytes], value: bytes) -> None:
    """Eight bytes of JSON would be two numbers, and an empty answer a result without a row."""
    found = Encoder(SIGNATURE).decode({"status": b"ok", **headers}, value)

    assert isinstance(found, Internal), found
    assert "expected application/octet-stream, got" in str(found) or "0 bytes are no rows of 8" in str(found)


def test_a_size_that_no_machine_has_is_no_answer() -> None:
    """Whatever numpy raises, the future of the answer ends, and those of its neighbours."""
    output = {"name": "y", "datatype": "INT8", "shape": [1], "parameters": {"binary_data_size": 2**64 - 1}}
    head = json.dumps({"outputs": [output]}).encode()

    assert isinstance(Encoder(None).decode({"status": b"ok", HEAD_LENGTH: b"%d" % len(head)}, head), Internal)


def test_a_record_without_a_status_is_no_answer() -> None:
    """A dead letter, or a request that was copied, has the id of the request, too."""
    found = Encoder(SIGNATURE).decode({"error-code": b"INTERNAL", "__dlq.errors.message": b"no"}, b'{"inputs": []}')

    assert isinstance(found, Internal)
    assert "no header status, so it is no answer: is the topic of answers the worker's response topic?" in found.message


def test_bytes_that_no_output_has_are_no_answer() -> None:
    """The sizes of a head must add up."""
    headers, value = answer({"y": ROW}, ["FP32"])

    assert isinstance(Encoder(None).decode(headers, value + b"!"), Internal)


@pytest.mark.parametrize("wrong", [{}, {"inputs": [{"name": "x"}], "outputs": []}, {"inputs": 1, "outputs": []}])
def test_what_is_no_metadata_is_refused(wrong: dict[str, Any]) -> None:
    """When the client is made."""
    with pytest.raises(ValueError, match="no metadata of a model"):
        Signature.of(wrong)


def test_a_datatype_that_is_none_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(ValueError, match="F32 is no datatype; there are BOOL"):
        signature([("x", "F32", [-1])], [])


def test_a_program_gives_a_signature_in_any_form() -> None:
    """As it is, as metadata, or none."""
    assert signature_of(SIGNATURE) is SIGNATURE
    assert signature_of(METADATA) == SIGNATURE
    assert signature_of(None) is None
