"""The golden exchanges in `schemas/examples`, read by our code, by the JSON Schemas, and by another protocol client."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from worker.codecs import Codecs, Wire
from worker.core.records import Array, ClosedBy, Message, Partition, Prediction, Record, Rejection, Request
from worker.core.signature import Signature, TensorSpec
from worker.core.stacking import Stacker

SCHEMAS = Path(__file__).parents[2] / "schemas"
EXAMPLES = SCHEMAS / "examples"
MANIFEST: dict[str, Any] = json.loads((EXAMPLES / "manifest.json").read_text(encoding="utf-8"))
EXCHANGES: dict[str, Any] = MANIFEST["exchanges"]
RESULTS = [name for name, exchange in EXCHANGES.items() if "answer" in exchange]
ERRORS = [name for name, exchange in EXCHANGES.items() if "error" in exchange]


class Side(NamedTuple):
    """One record of an exchange."""

    headers: dict[str, str]
    value: bytes

    @property
    def head(self) -> bytes:
        """The JSON part of the value; all of it without a binary-data form."""
        return self.value[: int(self.headers.get("Inference-Header-Content-Length", len(self.value)))]


def side(exchange: str, which: str) -> Side:
    held = EXCHANGES[exchange][which]
    return Side(held["headers"], (EXAMPLES / held["file"]).read_bytes())


def signature(exchange: str) -> Signature:
    name = EXCHANGES[exchange]["model"]
    model = MANIFEST["models"][name]
    return Signature(name, model["version"], specs(model["inputs"]), specs(model["outputs"]))


def specs(held: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(spec["name"], spec["datatype"], tuple(spec["dims"])) for spec in held)


def arrays(exchange: str, specs: Sequence[TensorSpec]) -> list[Array]:
    """The tensors that the exchange is about, as the manifest spells them out."""
    values = MANIFEST["values"][EXCHANGES[exchange]["model"]]
    return [np.array(values[spec.name], spec.dtype) for spec in specs]


def codecs(exchange: str) -> Codecs:
    return Codecs(
        signature(exchange), Wire("responses", MANIFEST["source"]["group"], "dead-letters"), tell=lambda _: None
    )


def record(exchange: str) -> Record:
    source = MANIFEST["source"]
    request = side(exchange, "request")
    headers = [(name, value.encode()) for name, value in request.headers.items()]
    partition = Partition(source["topic"], source["partition"])
    return Record(partition, source["offset"], b"user-7", request.value, headers, None)


def expect(message: Message, golden: Side) -> None:
    """The message is the golden record: JSON as a document, everything else byte by byte."""
    assert {name: (value or b"").decode() for name, value in message.headers} == golden.headers
    assert message.key == b"user-7"
    if golden.headers["content-type"] == "application/json":
        assert json.loads(message.value or b"") == json.loads(golden.value)
    else:
        assert message.value == golden.value


@pytest.mark.parametrize("exchange", RESULTS)
def test_a_golden_request_is_decoded_to_its_tensors(exchange: str) -> None:
    """What the manifest spells out is what reaches the model."""
    model = signature(exchange)

    request = codecs(exchange).decode(record(exchange))

    assert isinstance(request, Request), request
    batch, refused = Stacker(model).stack([request], ClosedBy.SIZE)
    assert batch is not None
    assert not refused
    for tensor, expected in zip(model.inputs, arrays(exchange, model.inputs), strict=True):
        np.testing.assert_array_equal(batch.feeds[tensor.name], expected)


@pytest.mark.parametrize("exchange", RESULTS)
def test_a_golden_answer_is_what_we_write(exchange: str) -> None:
    """Value and headers, to the byte."""
    codec = codecs(exchange)
    request = codec.decode(record(exchange))
    assert isinstance(request, Request), request

    (message,) = codec.encode(Prediction(request, tuple(arrays(exchange, signature(exchange).outputs))))

    expect(message, side(exchange, "answer"))


@pytest.mark.parametrize("exchange", ERRORS)
def test_a_golden_error_is_what_we_write(exchange: str) -> None:
    """A bad request gets exactly the error of the example, and its dead letter the headers."""
    codec = codecs(exchange)
    rejection = codec.decode(record(exchange))
    assert isinstance(rejection, Rejection), rejection

    error, letter = codec.encode(rejection)

    expect(error, side(exchange, "error"))
    assert letter.value == record(exchange).value
    if "dead_letter" in EXCHANGES[exchange]:
        headers = EXCHANGES[exchange]["dead_letter"]["headers"]
        assert {name: (value or b"").decode() for name, value in letter.headers} == headers


def json_values() -> dict[str, tuple[str, bytes]]:
    """The schema and the JSON of every example that is JSON or begins with it, by a name for the test."""
    schemas = {"request": "request", "answer": "response", "error": "error"}
    sides = {
        f"{exchange}-{which}": (schema, side(exchange, which).head)
        for exchange, held in EXCHANGES.items()
        for which, schema in schemas.items()
        if which in held
    }
    return {name: (schema, head) for name, (schema, head) in sides.items() if head.startswith(b"{")}


@pytest.mark.parametrize(("schema", "value"), list(json_values().values()), ids=list(json_values()))
def test_json_examples_are_as_the_schemas_say(schema: str, value: bytes) -> None:
    """Even the bad ones: what is wrong with them takes the model's signature to see."""
    rules = json.loads((SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(rules)

    Draft202012Validator(rules).validate(json.loads(value))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("request", {}),
        ("request", {"inputs": []}),
        ("request", {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32"}]}),
        ("request", {"inputs": [{"name": "x", "shape": [0, 3], "datatype": "FP32", "data": []}]}),
        ("request", {"inputs": [{"name": "x", "shape": [1], "datatype": "O", "data": [1]}]}),
        ("response", {"outputs": []}),
        ("error", {"id": "7"}),
    ],
)
def test_the_schemas_refuse_what_we_refuse(schema: str, value: dict[str, Any]) -> None:
    """The schemas are no empty gesture: what is no request, result or error does not pass."""
    rules = json.loads((SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8"))

    assert not Draft202012Validator(rules).is_valid(value)


def test_another_client_reads_our_protobuf_and_we_read_its() -> None:
    """tritonclient's messages, from its own copy of the protocol, in the same process."""
    request = service_pb2.ModelInferRequest.FromString(side("protobuf", "request").value)
    codec = codecs("protobuf")
    decoded = codec.decode(record("protobuf")._replace(value=request.SerializeToString()))
    assert isinstance(decoded, Request), decoded

    (message,) = codec.encode(Prediction(decoded, tuple(arrays("protobuf", signature("protobuf").outputs))))

    answer = service_pb2.ModelInferResponse.FromString(message.value)
    assert [tensor.name for tensor in answer.outputs] == ["score", "label"]
    assert list(np.frombuffer(answer.raw_output_contents[0], "<f4")) == [0.5, -1.5]
    assert [raw.decode() for raw in deserialize_bytes_tensor(answer.raw_output_contents[1])] == ["hello", "日本"]
    assert answer.id == request.id == "ticket-11"


def test_another_client_packs_strings_as_the_examples_do() -> None:
    """The binary form of BYTES is tritonclient's."""
    packed = serialize_byte_tensor(np.array([["grüße"], [""]], object)).item()

    assert packed in side("binary", "request").value
    assert packed in side("protobuf", "request").value
