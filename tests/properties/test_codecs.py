"""The codec reads any record as a request or a rejection, whatever its neighbours; right tensors come unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tests.meeting import meeting, met
from tests.unit.codecs.builders import (
    AS_JSON,
    AS_PROTOBUF,
    AS_ROWS,
    as_binary,
    as_json,
    codecs,
    decode,
    document,
    facts,
    floats,
    headers_of,
    leaving,
    model,
    packed,
    read_all,
    record,
    refusal,
    request,
    tensor,
)
from worker.codecs.codec import Codec
from worker.codecs.dead_letters import DeadLetters, read
from worker.codecs.message_sizes import ROOM_FOR_HEADERS, size_of
from worker.codecs.wire_contract import CONTENT_TYPES, HEAD_LENGTH, JSON, OCTETS, PROTOBUF
from worker.core.chunk import Prediction
from worker.core.failures import Code
from worker.core.records import (
    NO_IDS,
    Answer,
    Array,
    ClosedBy,
    Headers,
    Ids,
    Message,
    Partition,
    Record,
    Rejection,
    ReplyForm,
)
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import DTYPES, TensorSpec
from worker.core.tensors.stacking import Stacker

LIMIT = 1024  # the smallest limit of a topic that our settings allow

MODELS = [
    model(),
    model(TensorSpec("x", "BOOL", (3,))),
    model(TensorSpec("x", "BYTES", (2,)), TensorSpec("n", "INT8", (None,)), outputs=[TensorSpec("t", "BYTES", ())]),
]

OUR_NAMES = ["content-type", "accept", "request-id", HEAD_LENGTH, "correlation-id", "kafka_correlationId", "mine"]
header_values = st.none() | st.sampled_from([c.encode() for c in CONTENT_TYPES]) | st.binary(max_size=40)
any_headers = st.lists(st.tuples(st.sampled_from(OUR_NAMES) | st.text(max_size=8), header_values), max_size=6)


def limited(signature: Signature) -> Codec:
    return codecs(signature, dead_letter_topic="dead-letters", max_answer_bytes=LIMIT, max_dead_letter_bytes=LIMIT)


def expect_an_outcome(signature: Signature, came: Record) -> None:
    """Fail the test unless a request can be stacked and answered, or a rejection sent, within its topic.

    It is read alone, and then between others.
    """
    codec = limited(signature)
    chunks, rejections, _ = codec.read([came])
    met("a request" if chunks else "a rejection")
    answers: Sequence[Answer] = [rejection for _, rejection in rejections]
    for chunk in chunks:
        batch, _ = Stacker(signature, refuse_non_finite_input=False).stack([chunk], ClosedBy.SIZE)
        assert batch is not None
        rows = chunk.rows[0]
        for spec in signature.inputs:
            expect_fit(spec, batch.feeds[spec.name], rows)
        answers = codec.write(Prediction(chunk, [some_output(spec, rows) for spec in signature.outputs]))
    (answer,) = answers
    assert not isinstance(answer, Rejection) or answer.message
    expect_sendable(leaving(codec, answers))
    expect_neighbours_to_notice_nothing(signature, came)


def expect_neighbours_to_notice_nothing(signature: Signature, came: Record) -> None:
    """Fail the test unless the record, and right ones around it, are read as each alone."""
    right = [one for one, of in zip(RIGHT, OF_MODEL, strict=True) if MODELS[of] == signature]
    expected, alone = [facts(decode(limited(signature), one)) for one in right], facts(decode(limited(signature), came))
    for at in (0, 1, len(right)):
        together = read_all(limited(signature), [*right[:at], came, *right[at:]])

        assert list(map(facts, together)) == [*expected[:at], alone, *expected[at:]]


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


anything_in_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = ["id", "model_name", "model_version", "inputs", "outputs", "parameters"]
ENTRIES = ["name", "shape", "datatype", "data", "parameters"]
PARAMETERS = ["binary_data_size", "binary_data_output", "binary_data"]


@meeting("a request", "a rejection")
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
    """A document that is wrong in a few places is answered and raises nothing."""
    if parameters is not None:
        entry = {"parameters": parameters, **entry}
    outputs = [{"name": "y", "parameters": parameters, **output}] if output else []
    held = document(inputs=[tensor(**entry)], outputs=outputs, parameters=parameters) | changes

    expect_an_outcome(model(), as_json(held) if tail is None else as_binary(held, tail))


def requests_in_every_encoding() -> list[Record]:
    """Right requests for the models, in the order numbers, booleans, strings."""
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
            {"name": "x", "shape": [1, 2], "datatype": "BYTES", "parameters": {"binary_data_size": 13}},
            {"name": "n", "shape": [1, 2], "datatype": "INT8", "parameters": {"binary_data_size": 2}},
        ]
    }
    return [
        record(floats(*range(6)), AS_ROWS),
        as_json(document(id="i", outputs=[{"name": "y"}])),
        record(protobuf.SerializeToString(), AS_PROTOBUF),
        record(b"\0\1\1", AS_ROWS),
        as_json({"inputs": [tensor(datatype="BOOL", data=[[True, False, True]])]}),
        as_binary(head, packed("a", "éé") + b"\1\2"),
        record(strings.SerializeToString(), AS_PROTOBUF),
    ]


RIGHT = requests_in_every_encoding()
OF_MODEL = [0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("which", range(len(RIGHT)))
def test_what_the_examples_are_made_from_is_right(which: int) -> None:
    """Else the examples would test nothing but their own faults."""
    assert request(limited(MODELS[OF_MODEL[which]]), RIGHT[which])


@pytest.mark.parametrize("at", range(len(MODELS)), ids=["numbers", "booleans", "strings"])
@meeting("a request", "a rejection", "a key that does not fit beside the answer")
@given(
    right=st.booleans(),
    which=st.integers(0, 2),
    value=st.none() | st.binary(max_size=200),
    headers=any_headers,
    key=st.none() | st.binary(max_size=9) | st.integers(LIMIT // 2, 2 * LIMIT).map(bytes),
)
def test_any_bytes_under_any_headers_get_an_outcome(
    at: int, *, right: bool, which: int, value: bytes | None, headers: Any, key: bytes | None
) -> None:
    """Nothing raises, and the answer fits the smallest topic, also where only the headers are odd."""
    if right:
        usual = [one for one, of in zip(RIGHT, OF_MODEL, strict=True) if of == at]
        came = usual[which % len(usual)]
        value, headers = came.value, [*came.headers, *headers]

    expect_an_outcome(MODELS[at], record(value, *headers, key=key))
    met("a key that does not fit beside the answer", is_so=len(key or b"") > LIMIT - 200)


cuts = st.tuples(st.integers(0, 400), st.integers(0, 8), st.binary(max_size=8))


@pytest.mark.parametrize("which", range(len(RIGHT)))
@meeting("a request", "a rejection")
@given(mutations=st.lists(cuts, max_size=3))
def test_right_requests_with_wrong_bytes_get_an_outcome(which: int, mutations: list[tuple[int, int, bytes]]) -> None:
    """Bytes are replaced, lost or added anywhere."""
    value = RIGHT[which].value or b""
    for at, lost, added in mutations:
        at %= len(value) + 1  # noqa: PLW2901  # anywhere in what the value is by now
        value = value[:at] + added + value[at + lost :]

    expect_an_outcome(MODELS[OF_MODEL[which]], RIGHT[which]._replace(value=value))


def finite(datatype: str) -> st.SearchStrategy[Any]:
    """Elements of a datatype that JSON can hold."""
    dtype = DTYPES[datatype]
    if dtype.kind in "iu":
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        return st.integers(least, most) | st.sampled_from([least, most])
    if dtype.kind == "f":
        return st.floats(width=8 * dtype.itemsize, allow_nan=False, allow_infinity=False)  # type: ignore[arg-type]  # 16, 32, 64
    return st.booleans() if datatype == "BOOL" else st.text(max_size=5)


@st.composite
def tensors(draw: st.DrawFn, datatype: str) -> tuple[TensorSpec, list[Array]]:
    """A spec of this datatype, and the rows of one record or more: arrays of (rows, *dims) that fit it."""
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    count = int(np.prod(shape))
    values = draw(st.lists(finite(datatype), min_size=count, max_size=count))
    dims = tuple(draw(st.sampled_from([d, None])) for d in shape[1:])
    ends = draw(st.sets(st.integers(1, shape[0])))
    array = np.array(values, DTYPES[datatype]).reshape(shape)
    return TensorSpec("x", datatype, dims), [part for part in np.split(array, sorted(ends)) if len(part)]


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


# If drawn with everything else, some datatypes come once in a hundred examples, or never.
datatypes = pytest.mark.parametrize("datatype", DTYPES)
FEW = 15


def has_no_form(datatype: str, encoding: str) -> bool:
    """True if the encoding cannot hold the datatype: JSON would round a half float twice."""
    return datatype == "FP16" and encoding == JSON


SENDERS = {JSON: sent_as_json, OCTETS: sent_as_binary, PROTOBUF: sent_as_protobuf}


@datatypes
@pytest.mark.parametrize("encoding", SENDERS)
def test_tensors_come_through_unchanged(encoding: str, datatype: str) -> None:
    """This holds for every datatype and shape, in every encoding, for records that are read and stacked together."""
    if has_no_form(datatype, encoding):
        return

    @settings(max_examples=FEW)
    @given(held=tensors(datatype))
    def any_tensor(held: tuple[TensorSpec, list[Array]]) -> None:
        expect_unchanged(SENDERS[encoding], *held)

    with meeting("several records", "several rows", "an axis of any length", least=1):
        any_tensor()


def expect_unchanged(send: Callable[[TensorSpec, Array], Record], spec: TensorSpec, arrays: Sequence[Array]) -> None:
    met("several records", is_so=len(arrays) > 1)
    met("several rows", is_so=any(len(array) > 1 for array in arrays))
    met("an axis of any length", is_so=None in spec.dims)
    signature = model(spec)

    chunks, rejections, _ = codecs(signature).read([send(spec, array) for array in arrays])

    batch, refused = Stacker(signature).stack(chunks, ClosedBy.SIZE)
    assert batch is not None
    assert not rejections
    assert not refused
    in_order = [at for chunk in chunks for at in chunk.at]
    assert sorted(in_order) == list(range(len(arrays)))
    assert [rows for chunk in chunks for rows in chunk.rows] == [len(arrays[at]) for at in in_order]
    np.testing.assert_array_equal(batch.feeds["x"], np.concatenate([arrays[at] for at in in_order]))
    assert batch.feeds["x"].dtype == spec.dtype


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


@datatypes
@pytest.mark.parametrize("asked", [AS_ROWS, AS_JSON], ids=["rows", "json"])
@pytest.mark.parametrize("accept", CONTENT_TYPES)
def test_outputs_come_through_unchanged(asked: tuple[str, bytes], accept: str, datatype: str) -> None:
    """This holds for every datatype and shape, to rows and to JSON, in every encoding that can be accepted.

    Answers that are written together are as each alone.
    """
    if has_no_form(datatype, accept):
        return

    @settings(max_examples=FEW)
    @given(held=tensors(datatype))
    def any_output(held: tuple[TensorSpec, list[Array]]) -> None:
        expect_answered(asked, accept, *held)

    with meeting("several records", "several rows", least=1):
        any_output()


def expect_answered(asked: tuple[str, bytes], accept: str, spec: TensorSpec, arrays: Sequence[Array]) -> None:
    met("several records", is_so=len(arrays) > 1)
    met("several rows", is_so=any(len(array) > 1 for array in arrays))
    codec = codecs(model(outputs=[spec]))
    (chunk,), *_ = codec.read([asking(asked, accept, len(array)) for array in arrays])

    messages = leaving(codec, codec.write(Prediction(chunk, [np.concatenate(arrays)])))

    for at, (message, array) in enumerate(zip(messages, arrays, strict=True)):
        assert headers_of(message)["content-type"] == accept
        read = np.array(READERS[accept](message, spec), spec.dtype)
        np.testing.assert_array_equal(read, array.reshape(-1))
        assert leaving(codec, codec.write(Prediction(chunk.take(at, at + 1), [array]))) == [message]


def asking(asked: tuple[str, bytes], accept: str, rows: int) -> Record:
    """A request of so many rows."""
    numbers = [1.0] * 3 * rows
    value = (
        floats(*numbers)
        if asked is AS_ROWS
        else as_json(document(inputs=[tensor(shape=[rows, 3], data=numbers)])).value
    )
    return record(value, asked, ("accept", accept.encode()))


@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from(["status", "Source", "ERROR-CODE", "key-omitted", "Headers-Omitted", "dlq", "request-id"])
            | st.text(max_size=20).filter(lambda name: not name.lower().startswith("__dlq.")),
            st.none() | st.binary(max_size=20),
        ),
        max_size=8,
    )
)
def test_a_letter_keeps_every_header_and_has_no_word_but_its_own(headers: Headers) -> None:
    """Whatever the request's header names, a reader of the letter finds ours, and a replay finds the request's."""
    rejected = Rejection(record(b"{}", *headers, key=None), Code.INTERNAL, "no", ReplyForm(JSON), NO_IDS)

    letter = DeadLetters("dead", "group", 1_000_000).letter(rejected)

    names = [name.lower() for name, _ in letter.headers]
    assert names.count("error-code") == 1
    assert not {"status", "source", "value-omitted", "key-omitted", "headers-omitted"} & set(names)
    found = read(Record(Partition("dead", 0), 0, None, letter.value, letter.headers, None))
    assert (found.code, found.headers) == ("INTERNAL", list(headers))


lengths = st.sampled_from([0, 1, 60, 400]) | st.integers(0, 1500)  # no bytes, few, or too many


@meeting(
    "all of it is kept",
    "the value is left out",
    "the key is left out",
    "the headers are left out",
    "the error has no key",
    "the error has nothing that its requester sent",
)
@given(
    key=st.none() | st.binary(max_size=9) | lengths.map(bytes),
    value=st.none() | st.binary(max_size=9) | lengths.map(bytes),
    headers=st.lists(
        st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=9) | lengths.map(bytes)), max_size=3
    ),
    message=st.text(min_size=1, max_size=9) | lengths.map(lambda length: "m" * (length + 1)),
    body_id=st.none() | st.text(max_size=200),
    echo=st.lists(lengths.map(lambda length: bytes(min(1024, length))), max_size=3),
    content_type=st.sampled_from(CONTENT_TYPES),
)
@example(
    key=bytes(1000), value=b"", headers=[], message="m", body_id=None, echo=[bytes(60)], content_type=CONTENT_TYPES[0]
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
    """Error and dead letter fit topics that take 1 KiB, whatever the request held."""
    names = ("correlation-id", "traceparent", "tracestate")
    form, ids = ReplyForm(content_type), Ids(body_id, body_id, tuple(zip(names, echo, strict=False)))

    error, letter = refusal(
        limited(model()),
        Rejection(record(value, *headers, key=key), Code.RESOURCE_EXHAUSTED, message, form, ids),
    )

    expect_sendable([error, letter])
    kept = dict(letter.headers)
    met("all of it is kept", is_so=letter.value == value is not None)
    met("the value is left out", is_so="value-omitted" in kept and "key-omitted" not in kept)
    met("the key is left out", is_so="key-omitted" in kept)
    met("the headers are left out", is_so="headers-omitted" in kept and bool(headers))
    echoed = {*dict(error.headers)} & {*names}
    met("the error has no key", is_so=error.key is None and bool(key) and bool(echoed))
    met("the error has nothing that its requester sent", is_so=error.key is None and bool(echo) and not echoed)
    assert dict(letter.headers)["__dlq.errors.offset"] == b"1042"
    for written in (error, letter):
        carried = len(written.key or b"") + len(written.value or b"")
        assert size_of(written) <= carried + ROOM_FOR_HEADERS
