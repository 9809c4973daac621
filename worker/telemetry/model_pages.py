"""The Open Inference Protocol's paths beneath `/v2`: the server, whether it lives, and what its model takes and gives.

Here a client learns the type that its rows must have, before it sends any. Requests come over Kafka alone: there is no
`infer`. The answers are values; the server sends them.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote

from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.telemetry.metrics import Snapshot
from worker.version import VERSION

ROOT = "/v2"
PLATFORM = "onnxruntime_onnx"  # as the protocol's servers call ONNX Runtime with an ONNX file
JSON = "application/json"

ModelPage = tuple[HTTPStatus, bytes, str]


def model_page(path: str, snapshot: Snapshot) -> ModelPage:
    """The answer to a path beneath `/v2` that is no probe."""
    parts = [unquote(part) for part in path.removeprefix(ROOT).split("/")[1:]]
    if not parts:
        return _page(HTTPStatus.OK, name="inference-worker", version=VERSION, extensions=[])
    if parts[0] != "models" or len(parts) == 1:
        return _page(HTTPStatus.NOT_FOUND, error=f"beneath {ROOT} there are health/live, health/ready and models/NAME")
    served = snapshot.served
    if served is None:
        return _page(HTTPStatus.SERVICE_UNAVAILABLE, error="the model is not loaded yet")
    name, *rest = parts[1:]
    version = served.version
    if rest[:1] == ["versions"] and len(rest) > 1:
        version, rest = rest[1], rest[2:]
    if (name, version) != served.key:
        there = f"{ROOT}/models/{quote(served.name, safe='')}/versions/{quote(served.version, safe='')}"
        return _page(HTTPStatus.NOT_FOUND, error=f"this model or version is not served here; {there} is")
    if not rest:
        return _page(HTTPStatus.OK, **metadata(served))
    if rest == ["ready"]:
        status = HTTPStatus.OK if snapshot.unready is None else HTTPStatus.SERVICE_UNAVAILABLE
        return _page(status, name=served.name, ready=snapshot.unready is None)
    return _page(HTTPStatus.NOT_FOUND, error="a model has its metadata and `ready`; requests come over Kafka")


def metadata(signature: Signature) -> dict[str, Any]:
    """The protocol's description of a model; in a shape -1 is for requests to choose, the rows first.

    `parameters` is where other servers have theirs: here it says which file it is.
    """
    return {
        "name": signature.name,
        "versions": [signature.version],
        "platform": PLATFORM,
        "inputs": [_tensor(spec) for spec in signature.inputs],
        "outputs": [_tensor(spec) for spec in signature.outputs],
        "parameters": {"sha256": signature.sha256},
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    shape = [-1, *(-1 if size is None else size for size in spec.dims)]
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape}


def _page(status: HTTPStatus, **values: Any) -> ModelPage:
    return status, json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode(), JSON
