"""Plain rows, and the binary-data form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.codecs.builders import (
    AS_JSON,
    AS_ROWS,
    OF_FP32,
    OF_FP64,
    X,
    answer,
    as_binary,
    as_json,
    codecs,
    document,
    elements,
    f4,
    floats,
    giving,
    headers_of,
    json_of,
    model,
    packed,
    record,
    rejection,
    request,
    taking,
    tensor,
)
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.failures import Code
from worker.core.tensors.specs import TensorSpec


def sized(size: object, **changes: Any) -> dict[str, Any]:
    """An input whose elements stand behind the head."""
    entry = tensor(parameters={"binary_data_size": size}, **changes)
    del entry["data"]
    return entry


def test_rows_are_the_value_itself() -> None:
    """Nothing is copied, and the count follows from the length."""
    value = floats(1, 2, 3, 4, 5, 6)

    decoded = request(codecs(), record(value, AS_ROWS))

    assert decoded.tensors[0] == value
    assert isinstance(decoded.tensors[0], memoryview)
    assert (decoded.rows, decoded.shapes) == (2, ((3,),))
    assert decoded.size == len(value) + len("k") + len("content-type") + len("application/octet-stream")


@pytest.mark.parametrize("length", [1, 11, 13, 23])
def test_rows_must_be_whole(length: int) -> None:
    """The message says how long a row is."""
    refused = rejection(codecs(), record(b"\0" * length, AS_ROWS))

    assert refused.code == Code.INVALID_ARGUMENT
    assert "expected rows of 12 bytes" in refused.message
    assert f"got {length} bytes" in refused.message


@pytest.mark.parametrize(
    "said",
    [
        [OF_FP32],
        [("rows", b"2")],
        [OF_FP32, ("rows", b"2")],
        [("DataType", b"FP32"), ("Rows", b" 02 ")],
        [OF_FP64, OF_FP32],
    ],
)
def test_what_the_headers_say_of_rows_may_be_so(said: list[tuple[str, bytes]]) -> None:
    """The answer will say it, too; else right headers change nothing. If a name comes twice, the last one counts."""
    found = request(codecs(), record(floats(*range(6)), AS_ROWS, *said))

    assert (found.rows, found.form.states_rows) == (2, True)


def test_rows_of_another_datatype_are_refused_though_they_fit() -> None:
    """A row of FP64 is as long as two rows of FP32, and would get two confident answers."""
    row = np.zeros(3).tobytes()

    refused = rejection(codecs(), record(row, AS_ROWS, OF_FP64))

    assert request(codecs(), record(row, AS_ROWS)).rows == 2
    assert refused.code == Code.INVALID_ARGUMENT
    assert "expected FP32, got 'FP64' in the header datatype" in refused.message


@pytest.mark.parametrize("said", [b"", b"fp32", b"\xff", b"FP32" * 1000])
def test_no_other_spelling_is_a_datatype(said: bytes) -> None:
    """The message quotes it, shortened to a line."""
    refused = rejection(codecs(), record(floats(1, 2, 3), AS_ROWS, ("datatype", said)))

    assert refused.message.startswith("input x: expected FP32, got '")
    assert "in the header datatype" in refused.message
    assert len(refused.message) < 140


def test_another_number_of_rows_than_the_headers_say_is_refused() -> None:
    """A list that numpy made FP64 is as long as twice as many rows."""
    refused = rejection(codecs(), record(np.zeros(3).tobytes(), AS_ROWS, ("rows", b"1")))

    assert refused.code == Code.INVALID_ARGUMENT
    assert "expected 1 rows (header rows), got 24 bytes, 2 rows of x FP32[batch, 3]" in refused.message


@pytest.mark.parametrize("said", [b"0", b"-1", b"two", b"1.0", b"1234567890", b"\xff"])
def test_a_number_of_rows_is_a_whole_one(said: bytes) -> None:
    """Only decimal digits are accepted."""
    refused = rejection(codecs(), record(floats(1, 2, 3), AS_ROWS, ("rows", said)))

    assert refused.message.startswith("rows: expected a number of rows, 1 to 999999999, got '")


@pytest.mark.parametrize("said", [[], [OF_FP32], [("rows", b"2")]])
def test_a_deployment_may_want_rows_to_say_what_they_are(said: list[tuple[str, bytes]]) -> None:
    """Both headers are needed: another number of FP32 may be another row. The message says what to send."""
    strict = codecs(must_state_rows=True)
    given = record(floats(*range(6)), AS_ROWS, *said)

    assert request(strict, record(floats(*range(6)), AS_ROWS, OF_FP32, ("rows", b"2"))).rows == 2
    assert "send the headers datatype: FP32 and rows: 2" in rejection(strict, given).message


def test_what_is_no_plain_rows_says_itself_what_it_is() -> None:
    """Other forms ignore these headers, whatever a deployment wants."""
    said = [OF_FP64, ("rows", b"none")]

    assert request(codecs(must_state_rows=True), as_json(document(), *said)).rows == 1
    assert request(codecs(), as_binary({"inputs": [sized(12)]}, floats(1, 2, 3), *said)).rows == 1


def test_a_boolean_is_a_byte_of_zero_or_one() -> None:
    """A model would compute with a 2 as 2."""
    assert "BOOL" in rejection(codecs(taking("BOOL")), record(b"\0\1\2", AS_ROWS)).message


@pytest.mark.parametrize("signature", [model(X, TensorSpec("z", "FP32", (1,))), taking("BYTES"), taking("FP32", None)])
def test_a_model_that_rows_cannot_feed_says_so(signature: Any) -> None:
    """Several inputs, strings or a dynamic dimension rule rows out: the message names the other ways."""
    message = rejection(codecs(signature), record(floats(1, 2, 3), AS_ROWS)).message

    assert "send application/json, application/x-protobuf or the binary-data form" in message


@pytest.mark.parametrize(
    ("signature", "outputs", "tail"),
    [
        (giving("FP32", "INT64"), ([[0.5]], [[7]]), floats(0.5) + (7).to_bytes(8, "little")),
        (giving("BYTES"), ([["grüße"]],), packed("grüße")),
    ],
)
def test_what_rows_cannot_say_is_answered_in_binary_data_form(signature: Any, outputs: Any, tail: bytes) -> None:
    """Several outputs or strings do not fit into rows."""
    given = [np.array(o, spec.dtype) for o, spec in zip(outputs, signature.outputs, strict=True)]

    message = answer(codecs(signature), record(floats(1, 2, 3), AS_ROWS), *given)

    assert message.value is not None
    head = int(headers_of(message)[HEAD_LENGTH])
    assert message.value[head:] == tail
    assert message.value[:head].startswith(b'{"model_name":"m","model_version":"1","outputs":[{"name":"a"')


def test_the_binary_data_form_views_the_value() -> None:
    """Tensors come in the order of the named inputs, mixed with inputs in JSON. Only strings and JSON are copied."""
    signature = model(X, TensorSpec("t", "BYTES", (2,)), TensorSpec("n", "INT8", ()))
    head = document(
        inputs=[
            sized(10, name="t", shape=[1, 2], datatype="BYTES"),
            {"name": "n", "shape": [1], "datatype": "INT8", "data": [-5]},
            sized(12),
        ]
    )
    given = as_binary(head, packed("é", "") + floats(1, 2, 3))

    decoded = request(codecs(signature), given)

    x, t, n = decoded.tensors
    assert isinstance(x, memoryview)
    assert elements(x, "<f4") == [1, 2, 3]
    assert elements(t, "O") == ["é", ""]
    assert elements(n, "i1") == [-5]
    assert decoded.size > len(given.value or b"")


def test_json_with_a_head_length_is_the_binary_data_form_too() -> None:
    """Some clients write the head's type as content type; the answer then is JSON."""
    given = as_binary(document(inputs=[sized(12)]), floats(1, 2, 3))
    given = given._replace(headers=[AS_JSON, *given.headers[1:]])

    message = answer(codecs(), given, np.array([[1, 2]], "<f4"))

    assert json_of(message)["outputs"] == [{"name": "y", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}]


@pytest.mark.parametrize(
    ("inputs", "tail", "said"),
    [
        ([sized(13)], floats(1, 2, 3), "binary_data_size is 13, 12 bytes are left"),
        ([sized(-1)], floats(1, 2, 3), "binary_data_size is -1"),
        ([sized(8)], floats(1, 2), "expected 12 bytes (3 elements), got 8"),
        ([sized(12)], floats(1, 2, 3) + b"!", "13 bytes came behind the JSON head, binary_data_size speaks of 12"),
        ([tensor()], b"!", "1 bytes came behind the JSON head, binary_data_size speaks of 0"),
        ([sized("12")], floats(1, 2, 3), "expected `binary_data_size` to be an integer, got a string"),
        ([sized(12.0)], floats(1, 2, 3), "expected `binary_data_size` to be an integer, got a fraction"),
        ([sized(True)], b"!", "expected `binary_data_size` to be an integer, got a boolean"),
    ],
)
def test_the_sizes_must_add_up(inputs: list[Any], tail: bytes, said: str) -> None:
    """Each must fit its tensor, and all together the rest of the value."""
    assert said in rejection(codecs(), as_binary({"inputs": inputs}, tail)).message


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (packed("a", "b")[:-1], "expected 2 strings"),
        (packed("a") + b"\1\0", "expected 2 strings"),
        (packed("a"), "expected 2 strings"),
        (packed("a", "b", "c"), "expected 2 strings"),
        (b"\xff\xff\xff\xffab", "expected 2 strings"),
        (b"\1\0\0\0\xff" + packed("a"), "not UTF-8"),
        (b"\3\0\0\0\xed\xa0\x80" + packed("a"), "not UTF-8"),
    ],
)
def test_strings_must_fill_their_bytes(tail: bytes, said: str) -> None:
    """Their lengths must add up, and all must be UTF-8 without half characters."""
    head = {"inputs": [sized(len(tail), shape=[1, 2], datatype="BYTES")]}

    assert said in rejection(codecs(taking("BYTES", 2)), as_binary(head, tail)).message


def test_a_head_longer_than_the_value_is_refused() -> None:
    """The message gives both lengths."""
    refused = rejection(codecs(), record(b"{}", AS_ROWS, (HEAD_LENGTH, b"1000000")))

    assert refused.message == f"{HEAD_LENGTH}: 1000000 bytes announced, the value has 2"


@pytest.mark.parametrize(
    ("head", "binary"),
    [
        (document(inputs=[sized(12)]), [True, True]),
        (document(inputs=[sized(12)], parameters={"binary_data_output": False}), [False, False]),
        (
            document(inputs=[sized(12)], outputs=[{"name": "a", "parameters": {"binary_data": False}}, {"name": "b"}]),
            [False, True],
        ),
        (
            document(
                inputs=[sized(12)],
                parameters={"binary_data_output": False},
                outputs=[{"name": "a"}, {"name": "b", "parameters": {"binary_data": True}}],
            ),
            [False, True],
        ),
    ],
)
def test_outputs_of_the_binary_data_form_are_bytes_unless_asked_for_in_json(head: Any, binary: list[bool]) -> None:
    """An output's own parameter overrides the request's."""
    message = answer(codecs(giving("FP32", "FP32")), as_binary(head, floats(1, 2, 3)), f4([[0.5]]), f4([[1.5]]))

    assert message.value is not None
    length = int(headers_of(message)[HEAD_LENGTH])
    outputs = json_of(message._replace(value=message.value[:length]))["outputs"]
    assert ["parameters" in output for output in outputs] == binary
    assert message.value[length:] == b"".join(
        floats(v) for v, is_binary in zip([0.5, 1.5], binary, strict=True) if is_binary
    )


SCALED = model(X, TensorSpec("scale", "FP32", (), (), 2.5))


def test_rows_stand_for_the_only_input_that_has_no_default() -> None:
    """The other inputs are filled in, and count as memory of the request."""
    value = floats(1, 2, 3, 4, 5, 6)

    decoded = request(codecs(SCALED), record(value, AS_ROWS))

    assert decoded.tensors == (value, floats(2.5, 2.5))
    assert (decoded.rows, decoded.shapes) == (2, ((3,), ()))
    assert decoded.size == len(value) + 8 + len("k") + len("content-type") + len("application/octet-stream")


def test_neighbouring_rows_of_such_a_model_are_completed_together() -> None:
    """Each has as many elements filled in as it has rows."""
    records = [record(floats(*range(3 * n)), AS_ROWS) for n in range(1, 9)]

    (chunk,), *_ = codecs(SCALED).read(records)

    assert list(chunk.tensors[0]) == [one.value for one in records]
    assert list(chunk.tensors[1]) == [floats(2.5) * n for n in range(1, 9)]
