"""Requests in each encoding of the Open Inference Protocol, as a client writes them: a value and its headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson
from tritonclient.grpc import service_pb2

from bench.ground import HEADERS, Headers
from worker.codecs.wire_contract import HEAD_LENGTH
from worker.core.records import Array

Feeds = Mapping[str, Array]
DATATYPES = {"float32": "FP32", "int64": "INT64", "object": "BYTES"}
JSON: Headers = [("content-type", b"application/json"), ("mlserver-model", b"model")]
PROTOBUF: Headers = [("content-type", b"application/x-protobuf")]


class Request(NamedTuple):
    """One request as it lies in a topic."""

    value: bytes
    headers: Headers


def as_json(feeds: Feeds) -> Request:
    """Writes flat `data`, with no more digits than the datatype has."""
    said = {name: array.ravel().tolist() if array.dtype == object else array.ravel() for name, array in feeds.items()}
    inputs = [{**_head(name, array), "data": said[name]} for name, array in feeds.items()]
    return Request(orjson.dumps({"inputs": inputs}, option=orjson.OPT_SERIALIZE_NUMPY), JSON)


def as_protobuf(feeds: Feeds) -> Request:
    """Writes `inference.ModelInferRequest` with `raw_input_contents`."""
    inputs = [service_pb2.ModelInferRequest.InferInputTensor(**_head(name, array)) for name, array in feeds.items()]
    raw = [array.tobytes() for array in feeds.values()]
    return Request(service_pb2.ModelInferRequest(inputs=inputs, raw_input_contents=raw).SerializeToString(), PROTOBUF)


def as_binary(feeds: Feeds) -> Request:
    """Writes the binary-data form: JSON, followed by the bytes of the tensors."""
    sizes = {name: {"binary_data_size": array.nbytes} for name, array in feeds.items()}
    head = orjson.dumps(
        {"inputs": [{**_head(name, array), "parameters": sizes[name]} for name, array in feeds.items()]}
    )
    tail = b"".join(array.tobytes() for array in feeds.values())
    return Request(head + tail, [*HEADERS, (HEAD_LENGTH, b"%d" % len(head))])


def _head(name: str, array: Array) -> dict[str, object]:
    return {"name": name, "datatype": DATATYPES[array.dtype.name], "shape": list(array.shape)}
