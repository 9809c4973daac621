"""What a loop by hand does with requests, as an afternoon gives it: each is read and answered by itself.

The requests of a poll are one batch, padded to the bucket of the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
Header = tuple[str, str | bytes | None]
Answer = tuple[bytes, list[Header]]  # a value, and the headers that say how to read it

HEAD_LENGTH = "Inference-Header-Content-Length"
OCTETS, JSON, PROTOBUF = (f"application/{kind}".encode() for kind in ("octet-stream", "json", "x-protobuf"))
DTYPES: Mapping[str, np.dtype[Any]] = {
    "FP32": np.dtype(np.float32),
    "INT64": np.dtype(np.int64),
    "BYTES": np.dtype(object),
}
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


def _made(read: Callable[[Message], Feeds], write: Callable[[Feeds], Answer], task: Task) -> Made[Feeds]:
    session = opened(task.model)
    names = [output.name for output in session.get_outputs()]
    stack = _padded if isinstance(session.get_inputs()[0].shape[1], str) else np.concatenate

    def answers(requests: Sequence[Feeds]) -> list[Answer]:
        feeds = {name: stack([request[name] for request in requests]) for name in requests[0]}
        finite([*feeds.values()])
        outputs = finite(session.run(None, feeds))
        return [
            write({name: output[at : at + 1] for name, output in zip(names, outputs, strict=True)})
            for at in range(len(requests))
        ]

    return Made(read, answers, PROTOBUF if write is _write_protobuf else JSON)


def _padded(rows: Sequence[Array]) -> Array:
    found = np.zeros((len(rows), bucket(max(row.shape[1] for row in rows))), np.int64)
    for at, row in enumerate(rows):
        found[at, : row.shape[1]] = row[0]
    return found


def _equally_long(feeds: Feeds) -> Feeds:
    """Returns the inputs. Raises if they are not equally long: padding would hide it."""
    if len({array.shape for array in feeds.values()}) != 1:
        raise ValueError("the inputs are not equally long")
    return feeds


def _read_json(message: Message) -> Feeds:
    tensors = orjson.loads(message.value() or b"")["inputs"]
    return _equally_long(
        {each["name"]: np.array(each["data"], DTYPES[each["datatype"]]).reshape(each["shape"]) for each in tensors}
    )


def _read_protobuf(message: Message) -> Feeds:
    request = service_pb2.ModelInferRequest.FromString(message.value() or b"")
    tensors = zip(request.inputs, request.raw_input_contents, strict=True)
    return _equally_long(
        {each.name: np.frombuffer(raw, DTYPES[each.datatype]).reshape(each.shape) for each, raw in tensors}
    )


def _read_binary(message: Message) -> Feeds:
    value, found = message.value() or b"", {}
    end = int(dict(message.headers() or ())[HEAD_LENGTH] or 0)
    for each in orjson.loads(value[:end])["inputs"]:
        at, end = end, end + each["parameters"]["binary_data_size"]
        found[each["name"]] = np.frombuffer(value[at:end], DTYPES[each["datatype"]]).reshape(each["shape"])
    return _equally_long(found)


def _said(name: str, output: Array) -> dict[str, object]:
    return {"name": name, "datatype": DATATYPES[output.dtype], "shape": list(output.shape)}


def _write_json(outputs: Feeds) -> Answer:
    said = [{**_said(name, output), "data": output.ravel()} for name, output in outputs.items()]
    return orjson.dumps({**SAID, "outputs": said}, option=orjson.OPT_SERIALIZE_NUMPY), [("content-type", JSON)]


def _write_protobuf(outputs: Feeds) -> Answer:
    tensors = [service_pb2.ModelInferResponse.InferOutputTensor(**_said(*each)) for each in outputs.items()]
    raw = [output.tobytes() for output in outputs.values()]
    message = service_pb2.ModelInferResponse(**SAID, outputs=tensors, raw_output_contents=raw)
    return message.SerializeToString(), [("content-type", PROTOBUF)]


def _write_binary(outputs: Feeds) -> Answer:
    sizes = {name: {"binary_data_size": output.nbytes} for name, output in outputs.items()}
    said = [{**_said(name, output), "parameters": sizes[name]} for name, output in outputs.items()]
    head = orjson.dumps({**SAID, "outputs": said})
    value = head + b"".join([output.tobytes() for output in outputs.values()])
    return value, [("content-type", OCTETS), (HEAD_LENGTH, b"%d" % len(head))]


json = partial(_made, _read_json, _write_json)
protobuf = partial(_made, _read_protobuf, _write_protobuf)
binary = partial(_made, _read_binary, _write_binary)
