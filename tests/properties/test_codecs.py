"""Whatever comes, a request or a rejection leaves the codecs; what is right comes through unchanged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tests.unit.codecs.builders import (
    AS_JSON,
    AS_PROTOBUF,
    AS_ROWS,
    as_binary,
    as_json,
    codecs,
    document,
    floats,
    headers_of,
    model,
    packed,
    record,
    request,
    tensor,
)
from worker.codecs import Codecs
from worker.codecs.sizes import ROOM_FOR_HEADERS, size_of
from worker.codecs.wire import CONTENT_TYPES, HEAD_LENGTH
from worker.core.failures import Code
from worker.core.records import Array, ClosedBy, Message, Prediction, Record, Rejection, Reply, Request
from worker.core.signature import DTYPES, Signature, TensorSpec
from worker.core.stacking import Stacker

LIMIT = 1024  # the least a topic may take by our settings

MODELS = [
    model(),
    model(TensorSpec("x", "BOOL", (3,))),
    model(TensorSpec("x", "BYTES", (2,)), TensorSpec("n", "INT8", (None,)), outputs=[TensorSpec("t", "BYTES", ())]),
]

OUR_NAMES = ["content-type", "accept", "request-id", HEAD_LENGTH, "correlation-id", "kafka_correlationId", "mine"]
header_values = st.none() | st.sampled_from([c.encode() for c in CONTENT_TYPES]) | st.binary(max_size=40)
any_headers = st.lists(st.tuples(st.sampled_from(OUR_NAMES) | st.text(max_size=8), header_values), max_size=6)


def limited(signature: Signature) -> Codecs:
    return codecs(signature, dead_letter_topic="dead-letters", max_answer_bytes=LIMIT, max_dead_letter_bytes=LIMIT)


def expect_an_outcome(signature: Signature, came: Record) -> None:
    """Decoding raises nothing; a request can be stacked and answered, a rejection sent, each within its topic."""
    codec = limited(signature)
    decoded = codec.decode(came)
    if isinstance(decoded, Request):
        batch, _ = Stacker(signature, refuse_non_finite_input=False).stack([decoded], ClosedBy.SIZE)
        assert batch is not None
        for spec in signature.inputs:
            expect_fit(spec, batch.feeds[spec.name], decoded.rows)
        sent = codec.encode(Prediction(decoded, tuple(some_output(spec, decoded.rows) for spec in signature.outputs)))
    else:
        assert isinstance(decoded, Rejection)
        assert decoded.message
        sent = codec.encode(decoded)
    expect_sendable(sent)


def expect_fit(spec: TensorSpec, array: Array, rows: int) -> None:
    assert array.shape[0] == rows
    assert array.dtype == spec.dtype
    assert all(want in (None, got) for want, got in zip(spec.dims, array.shape[1:], strict=True))
    if spec.is_text:
        assert all(type(element) is str and element.encode() is not None for element in array.reshape(-1).tolist())


def some_output(spec: TensorSpec, rows: int) -> Array:
    shape = (rows, *(1 if d is None else d for d in spec.dims))
    return np.full(shape, "text" if spec.is_text else 0, spec.dtype)


def expect_sendable(sent: Sequence[Message]) -> None:
    assert 1 <= len(sent) <= 2
    assert sent[0].topic == "responses"
    assert headers_of(sent[0])["status"] in ("ok", "error")
    for message in sent:
        assert size_of(message) <= LIMIT
        for name, value in message.headers:
            assert isinstance(name, str)
            assert value is None or isinstance(value, bytes)


@pytest.mark.parametrize("signature", MODELS, ids=["numbers", "booleans", "strings"])
@given(value=st.none() | st.binary(max_size=200), headers=any_headers, key=st.none() | st.binary(max_size=2000))
def test_any_bytes_under_any_headers_get_an_outcome(
    signature: Signature, value: bytes | None, headers: Any, key: bytes | None
) -> None:
    """Nothing raises, and what is sent for it fits the smallest topic."""
    expect_an_outcome(signature, record(value, *headers, key=key))


anything_in_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = ["id", "model_name", "model_version", "inputs", "outputs", "parameters"]
ENTRIES = ["name", "shape", "datatype", "data", "parameters"]
PARAMETERS = ["binary_data_size", "binary_data_output", "binary_data"]


@given(
    changes=st.dictionaries(st.sampled_from(MEMBERS), anything_in_json, max_size=2),
    entry=st.dictionaries(st.sampled_from(ENTRIES), anything_in_json, max_size=2),
    parameters=st.none() | st.dictionaries(st.sampled_from(PARAMETERS), anything_in_json, max_size=2),
    output=st.dictionaries(st.sampled_from(ENTRIES), anything_in_json, max_size=2),
    tail=st.none() | st.binary(max_size=16),
)
def test_any_member_may_be_anything(
    changes: dict[str, Any], entry: dict[str, Any], parameters: Any, output: dict[str, Any], tail: bytes | None
) -> None:
    """A document that is right in all but a few places is answered, not raised over."""
    if parameters is not None:
        entry = {"parameters": parameters, **entry}
    outputs = [{"name": "y", "parameters": parameters, **output}] if output else []
    held = document(inputs=[tensor(**entry)], outputs=outputs, parameters=parameters) | changes

    expect_an_outcome(model(), as_json(held) if tail is None else as_binary(held, tail))


def requests_in_every_encoding() -> list[Record]:
    """Right requests for the models, in this order: numbers, booleans, strings."""
    x = service_pb2.ModelInferRequest.InferInputTensor
    contents = service_pb2.InferTensorContents
    protobuf = service_pb2.ModelInferRequest(
        id="i", inputs=[x(name="x", datatype="FP32", shape=[1, 3])], raw_input_contents=[floats(1, 2, 3)]
    )
    strings = service_pb2.ModelInferRequest(
        inputs=[
            x(name="x", datatype="BYTES", shape=[1, 2], contents=contents(bytes_contents=[b"a", b"b"])),
            x(name="n", datatype="INT8", shape=[1, 2], contents=contents(int_contents=[1, 2])),
        ]
    )
    head = {
        "inputs": [
            {"name": "x", "shape": [1, 2], "datatype": "BYTES", "parameters": {"binary_data_size": 11}},
            {"name": "n", "shape": [1, 2], "datatype": "INT8", "parameters": {"binary_data_size": 2}},
        ]
    }
    return [
        record(floats(*range(6)), AS_ROWS),
        as_json(document(id="i", outputs=[{"name": "y"}])),
        record(protobuf.SerializeToString(), AS_PROTOBUF),
        record(b"\0\1\1", AS_ROWS),
        as_json({"inputs": [tensor(datatype="BOOL", data=[[True, False, True]])]}),
        as_binary(head, packed("a", "éé")[:11] + b"\1\2"),
        record(strings.SerializeToString(), AS_PROTOBUF),
    ]


RIGHT = requests_in_every_encoding()
OF_MODEL = [0, 0, 0, 1, 1, 2, 2]
cuts = st.tuples(st.integers(0, 400), st.integers(0, 8), st.binary(max_size=8))


@pytest.mark.parametrize("which", range(len(RIGHT)))
@given(mutations=st.lists(cuts, max_size=3))
def test_right_requests_with_wrong_bytes_get_an_outcome(which: int, mutations: list[tuple[int, int, bytes]]) -> None:
    """Bytes replaced, lost or added anywhere."""
    value = RIGHT[which].value or b""
    for at, lost, added in mutations:
        at %= len(value) + 1  # noqa: PLW2901  # anywhere in what the value is by now
        value = value[:at] + added + value[at + lost :]

    expect_an_outcome(MODELS[OF_MODEL[which]], RIGHT[which]._replace(value=value))


def finite(datatype: str) -> st.SearchStrategy[Any]:
    """Elements of a datatype that its JSON form can say."""
    dtype = DTYPES[datatype]
    if dtype.kind in "iu":
        return st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    if dtype.kind == "f":
        return st.floats(width=8 * dtype.itemsize, allow_nan=False, allow_infinity=False)  # type: ignore[arg-type]  # 16, 32, 64
    return st.booleans() if datatype == "BOOL" else st.text(max_size=5)


@st.composite
def tensors(draw: st.DrawFn) -> tuple[TensorSpec, Array]:
    """A spec and an array of (rows, *dims) that fits it."""
    datatype = draw(st.sampled_from(list(DTYPES)))
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    count = int(np.prod(shape))
    values = draw(st.lists(finite(datatype), min_size=count, max_size=count))
    dims = tuple(draw(st.sampled_from([d, None])) for d in shape[1:])
    return TensorSpec("x", datatype, dims), np.array(values, DTYPES[datatype]).reshape(shape)


def flat_bytes(array: Array) -> bytes:
    return packed(*array.reshape(-1).tolist()) if array.dtype == object else array.tobytes()


def sent_as_json(spec: TensorSpec, array: Array) -> Record:
    return as_json({"inputs": [tensor(shape=array.shape, datatype=spec.datatype, data=array.tolist())]})


def sent_as_binary(spec: TensorSpec, array: Array) -> Record:
    raw = flat_bytes(array)
    entry = tensor(shape=array.shape, datatype=spec.datatype, parameters={"binary_data_size": len(raw)})
    return as_binary({"inputs": [entry]}, raw)


def sent_as_protobuf(spec: TensorSpec, array: Array) -> Record:
    entry = service_pb2.ModelInferRequest.InferInputTensor(name="x", datatype=spec.datatype, shape=array.shape)
    message = service_pb2.ModelInferRequest(inputs=[entry], raw_input_contents=[flat_bytes(array)])
    return record(message.SerializeToString(), AS_PROTOBUF)


@pytest.mark.parametrize("send", [sent_as_json, sent_as_binary, sent_as_protobuf])
@given(held=tensors())
def test_tensors_come_through_unchanged(send: Any, held: tuple[TensorSpec, Array]) -> None:
    """Every datatype and shape, in every encoding."""
    spec, array = held
    if send is sent_as_json and spec.datatype == "FP16":
        return
    signature = model(spec)

    decoded = request(codecs(signature), send(spec, array))

    batch, refused = Stacker(signature).stack([decoded], ClosedBy.SIZE)
    assert batch is not None
    assert not refused
    np.testing.assert_array_equal(batch.feeds["x"], array)
    assert batch.feeds["x"].dtype == array.dtype


def json_outputs(message: Message, _: TensorSpec) -> Any:
    return json.loads(message.value or b"")["outputs"][0]["data"]


def binary_outputs(message: Message, spec: TensorSpec) -> Any:
    raw = (message.value or b"")[int(headers_of(message).get(HEAD_LENGTH, 0)) :]
    return unpacked(raw) if spec.is_text else np.frombuffer(raw, spec.dtype).tolist()


def protobuf_outputs(message: Message, spec: TensorSpec) -> Any:
    raw = service_pb2.ModelInferResponse.FromString(message.value).raw_output_contents[0]
    return unpacked(raw) if spec.is_text else np.frombuffer(raw, spec.dtype).tolist()


def unpacked(raw: bytes) -> list[str]:
    strings = []
    while raw:
        end = 4 + int.from_bytes(raw[:4], "little")
        strings.append(raw[4:end].decode())
        raw = raw[end:]
    return strings


READERS = dict(zip(CONTENT_TYPES, [json_outputs, protobuf_outputs, binary_outputs], strict=True))


@pytest.mark.parametrize("asked", [AS_ROWS, AS_JSON])
@pytest.mark.parametrize("accept", CONTENT_TYPES)
@given(held=tensors())
def test_outputs_come_through_unchanged(asked: tuple[str, bytes], accept: str, held: tuple[TensorSpec, Array]) -> None:
    """Every datatype and shape, to rows and to JSON, in every encoding that can be accepted."""
    spec, array = held
    if accept == "application/json" and spec.datatype == "FP16":
        return
    codec = codecs(model(outputs=[spec]))
    value = floats(1, 2, 3) if asked is AS_ROWS else as_json(document()).value
    decoded = request(codec, record(value, asked, ("accept", accept.encode())))

    (message,) = codec.encode(Prediction(decoded, (array,)))

    assert headers_of(message)["content-type"] == accept
    read = np.array(READERS[accept](message, spec), spec.dtype)
    np.testing.assert_array_equal(read, array.reshape(-1))


@given(
    key=st.none() | st.binary(max_size=1500),
    value=st.none() | st.binary(max_size=1500),
    headers=st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=400)), max_size=8),
    message=st.text(min_size=1, max_size=1500),
    body_id=st.none() | st.text(max_size=200),
    echo=st.lists(st.binary(max_size=1024), max_size=3),
    content_type=st.sampled_from(CONTENT_TYPES),
)
def test_a_rejection_always_fits(
    key: bytes | None,
    value: bytes | None,
    headers: Any,
    message: str,
    body_id: str | None,
    echo: list[bytes],
    content_type: str,
) -> None:
    """Its error and its dead letter, in topics that take 1 KiB, whatever came with the request."""
    names = ("correlation-id", "traceparent", "tracestate")
    reply = Reply(content_type, body_id, body_id, echo=tuple(zip(names, echo, strict=False)))

    error, letter = limited(model()).encode(
        Rejection(record(value, *headers, key=key), Code.RESOURCE_EXHAUSTED, message, reply)
    )

    expect_sendable([error, letter])
    assert dict(letter.headers)["__dlq.errors.offset"] == b"1042"
    for written in (error, letter):
        carried = len(written.key or b"") + len(written.value or b"")
        assert size_of(written) <= carried + ROOM_FOR_HEADERS
