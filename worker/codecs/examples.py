"""Makes up requests for a model from its signature, for `publish --random` and `check`.

They are valid, with values that most models can take; inputs with a default are left out. Pure: the caller brings the
random numbers. A worker that serves does not use this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from worker.codecs.encodings import json_writer, protobuf_writer
from worker.codecs.encodings.columns import column_of
from worker.codecs.wire_contract import DATATYPE, HEAD_LENGTH, JSON, OCTETS, PROTOBUF, ROWS
from worker.core.records import Array
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

Feeds = Mapping[str, Array]

# The largest dynamic dimension. One request has one length for all of its inputs, because most share it (ids, mask).
_LONGEST_DIMENSION = 8


class EncodingName(StrEnum):
    """The ways to write a request. `BINARY` is the binary-data form."""

    ROWS = "rows"
    JSON = "json"
    PROTOBUF = "protobuf"
    BINARY = "binary"


class EncodedRequest(NamedTuple):
    """A request's value and the headers that say how to read it."""

    headers: tuple[tuple[str, bytes], ...]
    value: bytes


def encodings(signature: Signature) -> tuple[EncodingName, ...]:
    """The encodings that this model's requests and answers can have, the simplest first."""
    possible = [EncodingName.ROWS] if signature.raw_input is not None else []
    if all(spec.datatype != "FP16" for spec in (*signature.required, *signature.outputs)):
        possible.append(EncodingName.JSON)
    return (*possible, EncodingName.PROTOBUF, EncodingName.BINARY)


def example_feeds(
    signature: Signature, rows: int, rng: np.random.Generator, given: Feeds | None = None
) -> dict[str, Array]:
    """One array of shape (rows, *dims) and the input's dtype for each input that no request may leave out, by name.

    The rows are made up, or chosen from the `given` ones.
    """
    if given is not None:
        return _of_given(signature, rows, rng, given)
    dimension = int(rng.integers(1, _LONGEST_DIMENSION, endpoint=True))
    shapes = {spec: tuple(dimension if d is None else d for d in spec.dims) for spec in signature.required}
    return {spec.name: _values(spec, (rows, *dims), rng) for spec, dims in shapes.items()}


def _of_given(signature: Signature, rows: int, rng: np.random.Generator, given: Feeds) -> dict[str, Array]:
    chosen = rng.integers(0, len(given[signature.required[0].name]), rows)
    return {spec.name: given[spec.name][chosen] for spec in signature.required}


def encode_request(signature: Signature, feeds: Feeds, encoding: EncodingName) -> EncodedRequest:
    """One request with these tensors, except inputs with a default. `encoding` is one of `encodings(signature)`."""
    is_binary = encoding is not EncodingName.JSON
    columns = [column_of(spec, feeds[spec.name], binary=is_binary) for spec in signature.required]
    if encoding is EncodingName.ROWS:
        (only,) = signature.required
        return EncodedRequest(rows_headers(only.datatype, len(feeds[only.name])), columns[0].raws()[0])
    if encoding is EncodingName.JSON:
        return _encoded(JSON, json_writer.values(None, columns, 1)[0])
    if encoding is EncodingName.PROTOBUF:
        return _encoded(PROTOBUF, protobuf_writer.values(None, columns, 1)[0])
    (value,), (head,) = json_writer.binary_values(None, columns, 1)
    return _encoded(OCTETS, value, (HEAD_LENGTH, b"%d" % head))


def rows_headers(datatype: str | None, rows: int) -> tuple[tuple[str, bytes], ...]:
    """The headers of plain rows, whose bytes do not tell datatype and count. `datatype` None: only the count."""
    said = () if datatype is None else ((DATATYPE, datatype.encode()),)
    return (("content-type", OCTETS.encode()), *said, (ROWS, b"%d" % rows))


def _encoded(content_type: str, value: bytes, *more: tuple[str, bytes]) -> EncodedRequest:
    return EncodedRequest((("content-type", content_type.encode()), *more), value)


def _values(spec: TensorSpec, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Floats around 0 with three digits, truth values or short texts. INT32 and INT64 are often indices, so they are 0
    or 1: every table has an entry 0, and nearly every one an entry 1, even of token types."""
    if spec.is_float:
        return rng.standard_normal(shape).round(3).astype(spec.dtype)
    if spec.is_text:
        return np.array([f"text {n}" for n in rng.integers(0, 1000, shape).flat], object).reshape(shape)
    most = 2 if spec.datatype in ("BOOL", "INT32", "INT64") else 100
    return rng.integers(0, most, shape).astype(spec.dtype)
