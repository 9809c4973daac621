"""The golden exchanges in `schemas/examples` as values for tests: headers, bytes, models and tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from worker.codecs.codec import Codec
from worker.codecs.wire_contract import Wire
from worker.core.chunk import Chunk, Prediction
from worker.core.records import Array, Fields, Partition, Record
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

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
        """The JSON part of the value; the whole value if it has no binary-data form."""
        return self.value[: int(self.headers.get("Inference-Header-Content-Length", len(self.value)))]


def side(exchange: str, which: str) -> Side:
    held = EXCHANGES[exchange][which]
    return Side(held["headers"], (EXAMPLES / held["file"]).read_bytes())


def signature(exchange: str) -> Signature:
    name = EXCHANGES[exchange]["model"]
    model = MANIFEST["models"][name]
    return Signature(name, model["version"], specs(model["inputs"]), specs(model["outputs"]), sha256=model["sha256"])


def specs(held: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(spec["name"], spec["datatype"], tuple(spec["dims"])) for spec in held)


def arrays(exchange: str, specs: Sequence[TensorSpec]) -> list[Array]:
    """The exchange's tensors, as the manifest lists them."""
    values = MANIFEST["values"][EXCHANGES[exchange]["model"]]
    return [np.array(values[spec.name], spec.dtype) for spec in specs]


def codec(exchange: str) -> Codec:
    return Codec(
        [signature(exchange)], Wire("responses", MANIFEST["source"]["group"], "dead-letters"), tell=lambda _: None
    )


def chunk_of(codec: Codec, record: Record) -> Chunk:
    """The record as a chunk; it must be good."""
    chunks, rejections, _ = codec.read([record])
    assert not rejections
    (chunk,) = chunks
    return chunk


def answer(codec: Codec, record: Record, outputs: Sequence[Array]) -> Fields:
    """The result sent for the record when the model gives these outputs."""
    (message,) = codec.messages(codec.write(Prediction(chunk_of(codec, record), outputs)))
    return message


def text_of(message: Fields) -> dict[str, str]:
    """The headers as text."""
    return {name: (value or b"").decode() for name, value in message[3] or ()}


def record(exchange: str) -> Record:
    source = MANIFEST["source"]
    request = side(exchange, "request")
    headers = [(name, value.encode()) for name, value in request.headers.items()]
    partition = Partition(source["topic"], source["partition"])
    return Record(partition, source["offset"], b"user-7", request.value, headers, None)
