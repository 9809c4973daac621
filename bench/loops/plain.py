"""The work of a loop by hand, as an afternoon gives it: each request is read and answered by itself.

The requests of a poll are one batch, padded to the bucket of the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import orjson
from confluent_kafka import Message
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from bench.loops.task import Task, opened
from tests.ragged import bucket

R = TypeVar("R")
Array = NDArray[Any]
Feeds = Mapping[str, Array]
Read = Iterator[tuple[str, Array]]  # the name and tensor of each input
Header = tuple[str, str | bytes | None]
Answer = tuple[bytes, list[Header]]  # a value, and the headers that say how to read it

HEAD_LENGTH = "Inference-Header-Content-Length"
OCTETS, JSON, PROTOBUF = (f"application/{kind}".encode() for kind in ("octet-stream", "json", "x-protobuf"))
DTYPES: Mapping[str, np.dtype[Any]] = {"FP32": np.dtype("f4"), "INT64": np.dtype("i8"), "BYTES": np.dtype("O")}
DATATYPES = {dtype: datatype for datatype, dtype in DTYPES.items()}
SAID = {"model_name": "model", "model_version": "1"}


class Made(NamedTuple, Generic[R]):
    """A loop's two steps: read one message, and answer all requests of a poll. Both raise if a request is bad."""

    read: Callable[[Message], R]
    answers: Callable[[Sequence[R]], Sequence[Answer]]
    error_type: bytes


def finite(arrays: Sequence[Array]) -> Sequence[Array]:
    """Returns the arrays. Raises if a float is NaN or infinite."""
    if not all(array.dtype != np.float32 or np.isfinite(array).all() for array in arrays):
        raise ValueError("NaN or infinity")
    return arrays


def _made(read: Callable[[Message], Read], write: Callable[[Feeds], Answer], task: Task) -> Made[Feeds]:
    session = opened(task.model)
    names = [output.name for output in session.get_outputs()]
    stack = _padded if isinstance(session.get_inputs()[0].shape[1], str) else np.concatenate

    def feeds(message: Message) -> Feeds:
        found = dict(read(message))
        if len({array.shape for array in found.values()}) != 1:
            raise ValueError("the inputs are not equally long")  # padding would hide it
        return found

    def answers(requests: Sequence[Feeds]) -> list[Answer]:
        batch = {name: stack([request[name] for request in requests]) for name in requests[0]}
        finite([*batch.values()])
        outputs = finite(session.run(None, batch))
        rows = ([output[at : at + 1] for output in outputs] for at in range(len(requests)))
        return [write(dict(zip(names, row, strict=True))) for row in rows]

    return Made(feeds, answers, PROTOBUF if write is write_protobuf else JSON)


def _padded(rows: Sequence[Array]) -> Array:
    found = np.zeros((len(rows), bucket(max(row.shape[1] for row in rows))), np.int64)
    for at, row in enumerate(rows):
        found[at, : row.shape[1]] = row[0]
    return found


def read_json(message: Message) -> Read:
    for each in orjson.loads(message.value() or b"")["inputs"]:
        yield each["name"], np.array(each["data"], DTYPES[each["datatype"]]).reshape(each["shape"])


def read_protobuf(message: Message) -> Read:
    request = service_pb2.ModelInferRequest.FromString(message.value() or b"")
    for each, raw in zip(request.inputs, request.raw_input_contents, strict=True):
        yield each.name, np.frombuffer(raw, DTYPES[each.datatype]).reshape(each.shape)


def read_binary(message: Message) -> Read:
    for each, raw in zip(*parts(message), strict=True):
        yield each["name"], np.frombuffer(raw, DTYPES[each["datatype"]]).reshape(each["shape"])


def parts(message: Message) -> tuple[Sequence[Any], Sequence[bytes]]:
    """Returns the tensors that the JSON of binary data describes, and the bytes of each."""
    value, found = message.value() or b"", []
    end = int(dict(message.headers() or ())[HEAD_LENGTH] or 0)
    tensors = orjson.loads(value[:end])["inputs"]
    for each in tensors:
        at, end = end, end + each.pop("parameters")["binary_data_size"]
        found.append(value[at:end])
    return tensors, found


def head(name: str, output: Array) -> dict[str, object]:
    return {"name": name, "datatype": DATATYPES[output.dtype], "shape": list(output.shape)}


def write_json(outputs: Feeds) -> Answer:
    said = [{**head(name, output), "data": output.ravel()} for name, output in outputs.items()]
    return orjson.dumps({**SAID, "outputs": said}, option=orjson.OPT_SERIALIZE_NUMPY), [("content-type", JSON)]


def write_protobuf(outputs: Feeds) -> Answer:
    tensors = [service_pb2.ModelInferResponse.InferOutputTensor(**head(*each)) for each in outputs.items()]
    raw = [output.tobytes() for output in outputs.values()]
    message = service_pb2.ModelInferResponse(**SAID, outputs=tensors, raw_output_contents=raw)
    return message.SerializeToString(), [("content-type", PROTOBUF)]


def write_binary(outputs: Feeds) -> Answer:
    sizes = {name: {"binary_data_size": output.nbytes} for name, output in outputs.items()}
    said = [{**head(name, output), "parameters": sizes[name]} for name, output in outputs.items()]
    text = orjson.dumps({**SAID, "outputs": said})
    value = text + b"".join([output.tobytes() for output in outputs.values()])
    return value, [("content-type", OCTETS), (HEAD_LENGTH, b"%d" % len(text))]


json = partial(_made, read_json, write_json)
protobuf = partial(_made, read_protobuf, write_protobuf)
binary = partial(_made, read_binary, write_binary)
