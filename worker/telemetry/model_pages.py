"""The Open Inference Protocol's paths beneath `/v2`: the server, whether it lives, and what its model takes and gives.

Here a client learns of which type its rows must be, before it sends any. Requests come over Kafka alone: there is no
`infer`. The answers are values; the server sends them.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote

from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.telemetry.metrics.metric_values import Snapshot
from worker.version import VERSION

ROOT = "/v2"
# As the protocol's servers call ONNX Runtime with an ONNX file.
PLATFORM = "onnxruntime_onnx"
JSON = "application/json"

ModelPage = tuple[HTTPStatus, bytes, str]


def model_page(path: str, snapshot: Snapshot, dead: str | None) -> ModelPage:
    """What a path beneath `/v2` is answered. `dead` says why the snapshot's worker counts as dead."""
    match [unquote(part) for part in path.removeprefix(ROOT).split("/")[1:]]:
        case []:
            return _found({"name": "inference-worker", "version": VERSION, "extensions": []})
        case ["health", "live"]:
            return _verdict({"live": dead is None})
        case ["health", "ready"]:
            return _verdict({"ready": snapshot.unready is None})
        case ["models", name, *rest]:
            return _of_model(name, rest, snapshot)
    return _error(HTTPStatus.NOT_FOUND, f"beneath {ROOT} there are health/live, health/ready and models/NAME")


def _of_model(name: str, rest: list[str], snapshot: Snapshot) -> ModelPage:
    served = snapshot.served
    if served is None:
        return _error(HTTPStatus.SERVICE_UNAVAILABLE, "the model is not loaded yet")
    if rest[:1] == ["versions"] and len(rest) > 1:
        version, rest = rest[1], rest[2:]
    else:
        version = served.version
    if (name, version) != served.key:
        there = f"{ROOT}/models/{quote(served.name, safe='')}/versions/{quote(served.version, safe='')}"
        return _error(HTTPStatus.NOT_FOUND, f"this model or version is not served here; {there} is")
    match rest:
        case []:
            return _found(metadata(served))
        case ["ready"]:
            return _verdict({"name": served.name, "ready": snapshot.unready is None})
    return _error(HTTPStatus.NOT_FOUND, "of a model there are its metadata and `ready`; requests come over Kafka")


def metadata(signature: Signature) -> dict[str, Any]:
    """The protocol's description of a model; in a shape -1 is what requests choose, the rows first.

    Its `parameters` are ours, in the place where other servers have theirs: which file it is.
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


def _verdict(values: dict[str, Any]) -> ModelPage:
    """The last value says whether it is so; a probe reads the status."""
    is_so = list(values.values())[-1]
    return HTTPStatus.OK if is_so else HTTPStatus.SERVICE_UNAVAILABLE, _json(values), JSON


def _found(values: dict[str, Any]) -> ModelPage:
    return HTTPStatus.OK, _json(values), JSON


def _error(status: HTTPStatus, why: str) -> ModelPage:
    return status, _json({"error": why}), JSON


def _json(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()
