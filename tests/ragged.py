"""Requests of ragged lengths for `models.encoder`: realistic text lengths, requests, and the expected answers.

Lengths are lognormal with a mean of about 40, clipped to 4–256: half of all texts are below 30 tokens, and one in fifty
above 128. Nothing here imports `worker`: a mistake there must not hide here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

Ids: TypeAlias = "NDArray[np.int64]"
Outputs: TypeAlias = "Mapping[str, NDArray[np.float32]]"

MEAN, SPREAD = 40, 0.8  # of the lengths, and of their logarithm
LEAST, MOST = 4, 256
BOUNDARIES = (16, 32, 64, 128, 256)
# The worker's setting. The mask shares the axis, since the file gives both axes one name.
BUCKETS = json.dumps({"input_ids": {"axis": 1, "boundaries": BOUNDARIES, "pad": 0}})
PROTOBUF = ("content-type", b"application/x-protobuf")
OUTPUTS = ("embedding", "tokens")
TOLERANCE = 1e-4


def long_tailed(count: int, seed: int = 11) -> list[int]:
    """So many lengths. Equal seeds give equal lengths; a larger count only adds more at the end."""
    drawn = np.random.default_rng(seed).lognormal(np.log(MEAN) - SPREAD**2 / 2, SPREAD, count)
    return [int(length) for length in np.clip(np.round(drawn), LEAST, MOST)]


def texts(lengths: Sequence[int], vocabulary: int, seed: int = 12) -> list[Ids]:
    """Token ids, one array for each length; none is 0, which is padding."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, vocabulary, length) for length in lengths]


def bucket(length: int) -> int:
    """The smallest boundary that holds the length."""
    return next(boundary for boundary in BOUNDARIES if length <= boundary)


def padded(rows: Sequence[Ids], length: int) -> dict[str, Ids]:
    """The model's inputs (rows, length): zeros behind each row's own tokens."""
    ids, mask = np.zeros((len(rows), length), np.int64), np.zeros((len(rows), length), np.int64)
    for at, row in enumerate(rows):
        ids[at, : len(row)], mask[at, : len(row)] = row, 1
    return {"input_ids": ids, "attention_mask": mask}


class Alone:
    """ONNX Runtime alone, on one thread."""

    def __init__(self, model: bytes | Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        graph = model if isinstance(model, bytes) else str(model)
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(self, rows: Sequence[Ids], length: int) -> Outputs:
        """Return embedding (rows, width) and tokens (rows, length, 4) of rows padded to a length."""
        found = self._session.run(OUTPUTS, padded(rows, length))
        return dict(zip(OUTPUTS, found, strict=True))

    def one(self, row: Ids) -> Outputs:
        """The outputs of one unpadded row by itself, which its answer must equal."""
        return self.run([row], len(row))


def cut(found: Outputs, at: int, length: int) -> Outputs:
    """One row's outputs out of a batch, its tokens cut back to its own length."""
    return {"embedding": found["embedding"][at : at + 1], "tokens": found["tokens"][at : at + 1, :length]}


def as_request(row: Ids) -> bytes:
    """An `inference.ModelInferRequest` of one row, its tensors as raw bytes."""
    feeds = padded([row], len(row))
    tensor = service_pb2.ModelInferRequest.InferInputTensor
    message: bytes = service_pb2.ModelInferRequest(
        inputs=[tensor(name=name, datatype="INT64", shape=values.shape) for name, values in feeds.items()],
        raw_input_contents=[values.tobytes() for values in feeds.values()],
    ).SerializeToString()
    return message


def row_of(request: bytes) -> Ids:
    """The token ids of a request that `as_request` made."""
    return np.frombuffer(service_pb2.ModelInferRequest.FromString(request).raw_input_contents[0], np.int64)


def fault(answer: bytes, expected: Outputs) -> str | None:
    """Describes what is wrong with an answer in protobuf. None: shapes are as expected, values within the tolerance."""
    message = service_pb2.ModelInferResponse.FromString(answer)
    shapes = {output.name: tuple(output.shape) for output in message.outputs}
    wanted = {name: values.shape for name, values in expected.items()}
    if shapes != wanted:
        return f"outputs {shapes}, not {wanted}"
    for output, raw in zip(message.outputs, message.raw_output_contents, strict=True):
        found = np.frombuffer(raw, np.float32).reshape(shapes[output.name])
        off = float(np.abs(found - expected[output.name]).max())
        if not off <= TOLERANCE:  # true for NaN too
            return f"{output.name} is off by {off:g}"
    return None
