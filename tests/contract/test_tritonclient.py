"""Another implementation of the protocol: NVIDIA's tritonclient reads our answers, and we read its requests.

Its messages live in protobuf's default pool, ours in a pool of their own, so both can be imported here.
"""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from tritonclient import grpc, http
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, triton_to_np_dtype

from tests.chunks import record as a_record
from tests.contract.exchanges import arrays, chunk_of, side, signature, text_of
from tests.unit.test_settings import LEAST
from worker.codecs.codec import Codec
from worker.codecs.encodings.inference_pb2 import DESCRIPTOR
from worker.codecs.wire_contract import Wire
from worker.core.chunk import Prediction
from worker.core.records import Array, ClosedBy, Headers
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.core.tensors.stacking import Stacker
from worker.settings import load
from worker.telemetry import HttpServer, Pages, WorkerEvents

HEAD_LENGTH = "Inference-Header-Content-Length"
JSON = ("content-type", b"application/json")
OCTETS = ("content-type", b"application/octet-stream")
PROTOBUF = ("content-type", b"application/x-protobuf")

SHARED = ("ModelInferRequest", "ModelInferResponse", "InferParameter", "InferTensorContents")

NUMBERS = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP16", "FP32", "FP64")


def numbers(datatype: str) -> Array:
    """Two rows of two elements, with both ends of the datatype's range."""
    dtype = np.dtype(triton_to_np_dtype(datatype))
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return np.array([[limits.min, 0], [1, limits.max]], dtype)


ROWS = {
    **{datatype: numbers(datatype) for datatype in NUMBERS},
    "BOOL": np.array([[True, False], [False, True]]),
    "BYTES": np.array([["grüße", ""], ["日本", "a\nb"]], object),
}


def identity(datatype: str) -> Signature:
    """A model that returns its only input, two elements a row."""
    return Signature("m", "1", (TensorSpec("x", datatype, (2,)),), (TensorSpec("y", datatype, (2,)),))


def echoed(datatype: str, value: bytes, headers: Headers) -> tuple[dict[str, str], bytes]:
    """Headers and value of the answer of a model that returns its input."""
    model = identity(datatype)
    codec = Codec([model], Wire("responses", "group"), tell=lambda _: None)
    chunk = chunk_of(codec, a_record(value=value)._replace(headers=headers))
    batch, refused = Stacker(model).stack([chunk], ClosedBy.SIZE)
    assert batch is not None, refused
    (message,) = codec.messages(codec.write(Prediction(chunk, (batch.feeds["x"],))))
    return text_of(message), message[2] or b""


def read(headers: dict[str, str], value: bytes) -> http.InferResult:
    """An answer as tritonclient reads it: JSON, or the binary-data form."""
    length = headers.get(HEAD_LENGTH)
    return http.InferResult.from_response_body(value, header_length=int(length) if length else None)


def text(array: Array) -> Array:
    """tritonclient gives strings as bytes."""
    if array.dtype != object:
        return array
    return np.array([one.decode() if isinstance(one, bytes) else one for one in array.ravel()]).reshape(array.shape)


def fields(message: Descriptor) -> dict[str, tuple[int, int, bool]]:
    """Number, type and repetition of each field by its full name, nested messages included."""
    own = {field.full_name: (field.number, field.type, field.is_repeated) for field in message.fields}
    return own | {name: field for nested in message.nested_types for name, field in fields(nested).items()}


def tagger_inputs() -> list[http.InferInput]:
    """The tensors of the golden requests to the tagger, as tritonclient holds them; strings first."""
    ids, strings = arrays("binary", signature("binary").inputs)
    inputs = [http.InferInput("text", [2, 1], "BYTES"), http.InferInput("ids", [2, 2], "INT64")]
    inputs[0].set_data_from_numpy(strings)
    inputs[1].set_data_from_numpy(ids)
    return inputs


# The golden files


def test_the_golden_binary_request_is_what_tritonclient_writes() -> None:
    """Every byte is equal, and the length of its head too."""
    value, head = http.InferenceServerClient.generate_request_body(tagger_inputs(), request_id="ticket-10")

    golden = side("binary", "request")
    assert value == golden.value
    assert str(head) == golden.headers[HEAD_LENGTH]


@pytest.mark.parametrize("exchange", ["json", "json-nested", "binary", "protobuf-contents"])
def test_tritonclient_reads_the_golden_answers(exchange: str) -> None:
    """Names, shapes and every element are right, in JSON and in the binary-data form."""
    golden = side(exchange, "answer")

    result = read(golden.headers, golden.value)

    model = signature(exchange)
    named = {output["name"] for output in result.get_response()["outputs"]}
    assert named
    for spec, array in zip(model.outputs, arrays(exchange, model.outputs), strict=True):
        if spec.name in named:
            np.testing.assert_array_equal(text(result.as_numpy(spec.name)), array)


def test_the_golden_protobuf_request_is_what_tritonclient_s_messages_write() -> None:
    """Built field by field in its classes, it equals our file byte by byte."""
    ids, strings = arrays("protobuf", signature("protobuf").inputs)
    inputs = [
        {"name": "ids", "datatype": "INT64", "shape": [2, 2]},
        {"name": "text", "datatype": "BYTES", "shape": [2, 1]},
    ]
    raw = [ids.tobytes(), serialize_byte_tensor(strings).item()]

    built = service_pb2.ModelInferRequest(
        model_name="tagger", model_version="3", id="ticket-11", inputs=inputs, raw_input_contents=raw
    )

    assert built.SerializeToString(deterministic=True) == side("protobuf", "request").value


def test_tritonclient_reads_the_golden_protobuf_answer() -> None:
    """Its own result class finds names, shapes, strings and numbers."""
    message = service_pb2.ModelInferResponse.FromString(side("protobuf", "answer").value)

    result = grpc.InferResult(message)

    model = signature("protobuf")
    for spec, array in zip(model.outputs, arrays("protobuf", model.outputs), strict=True):
        np.testing.assert_array_equal(text(result.as_numpy(spec.name)), array)
    assert (message.model_name, message.model_version, message.id) == ("tagger", "3", "ticket-11")


# Every datatype, there and back


@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("datatype", ROWS)
def test_tensors_come_back_to_tritonclient_as_it_sent_them(datatype: str, *, is_binary: bool) -> None:
    """We unpack its tensors and it unpacks ours, in binary and as JSON, which FP16 does not have."""
    if datatype == "FP16" and not is_binary:
        return
    x = http.InferInput("x", [2, 2], datatype)
    x.set_data_from_numpy(ROWS[datatype], binary_data=is_binary)
    y = http.InferRequestedOutput("y", binary_data=is_binary)
    value, head = http.InferenceServerClient.generate_request_body([x], [y])

    headers, answer = echoed(datatype, value, [OCTETS, (HEAD_LENGTH, b"%d" % head)] if is_binary else [JSON])

    np.testing.assert_array_equal(text(read(headers, answer).as_numpy("y")), ROWS[datatype])


@pytest.mark.parametrize("datatype", ROWS)
def test_protobuf_comes_back_to_tritonclient_as_it_sent_it(datatype: str) -> None:
    """It sends its messages, and its result class reads ours."""
    rows = ROWS[datatype]
    raw = serialize_byte_tensor(rows).item() if datatype == "BYTES" else rows.tobytes()
    x = {"name": "x", "datatype": datatype, "shape": [2, 2]}
    request = service_pb2.ModelInferRequest(inputs=[x], raw_input_contents=[raw])

    _, answer = echoed(datatype, request.SerializeToString(), [PROTOBUF])

    result = grpc.InferResult(service_pb2.ModelInferResponse.FromString(answer))
    np.testing.assert_array_equal(text(result.as_numpy("y")), rows)


# The messages themselves


@pytest.mark.parametrize("message", SHARED)
def test_our_messages_have_tritonclient_s_fields(message: str) -> None:
    """Names, numbers and types are equal, in nested messages too."""
    pool = DescriptorPool()
    pool.AddSerializedFile(DESCRIPTOR)
    ours = pool.FindMessageTypeByName(f"inference.{message}")

    assert fields(ours) == fields(getattr(service_pb2, message).DESCRIPTOR)


def test_a_worker_tells_what_it_serves() -> None:
    """It tells server, health and model over its own HTTP port; ready differs from live."""
    events, taking = WorkerEvents(32), Signature("a b", "2", (TensorSpec("x", "FP16", (3, None)),), ())
    server = HttpServer("127.0.0.1", 0, Pages(lambda: events.latest, load(None, LEAST)).answer)
    client = http.InferenceServerClient(server.url.removeprefix("http://"))

    with pytest.raises(InferenceServerException, match="the model is not loaded yet"):
        client.get_model_metadata("a b")
    events.serves(taking)
    told = client.get_model_metadata("a b", "2")
    lives, is_ready = client.is_server_live(), client.is_server_ready()
    models_ready, name = client.is_model_ready("a b"), client.get_server_metadata()["name"]
    client.close()
    server.close()

    assert told["inputs"] == [{"name": "x", "datatype": "FP16", "shape": [-1, 3, -1]}]
    assert (told["name"], told["versions"]) == ("a b", ["2"])
    assert (lives, is_ready, models_ready, name) == (True, False, False, "inference-worker")
