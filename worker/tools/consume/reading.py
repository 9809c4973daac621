"""What a record of any topic says to people: answers first of all, requests and dead letters as well as can be.

For `consume`, not on the worker's own road. Believes nothing and refuses nothing: a value that is not what its headers
say is shown as the bytes it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson

from worker.codecs.encodings import oip_protobuf
from worker.codecs.encodings.elements import from_bytes
from worker.codecs.encodings.raw_tensor import split
from worker.codecs.wire_contract import HEAD_LENGTH, JSON, OCTETS, PROTOBUF
from worker.core.failures import Reject
from worker.core.records import Array, Headers, Record
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import DTYPES, TensorSpec

Role = Literal["outputs", "inputs"]

# What comes of a value that is not what it says, wherever in taking it apart that shows.
_UNLIKE = (Reject, ValueError, KeyError, TypeError, AttributeError)
# DEL and the C1 controls, which JSON takes raw and a terminal obeys, in UTF-8.
_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]")


class ReadTensor(NamedTuple):
    """One tensor, flat: `shape` as it claims to be, None where it is not said. `data` is an array or a JSON list."""

    name: str
    datatype: str
    shape: Sequence[int] | None
    data: Array | Sequence[object]


class Reading(NamedTuple):
    """What a value says: tensors in their `role`, or an `error`, or neither: then it is not understood.

    `named` has model_name, model_version and id, those that are there. `is_rows`: to be read with a model's signature,
    and none was given.
    """

    role: Role = "outputs"
    tensors: Sequence[ReadTensor] | None = None
    error: str | None = None
    named: Mapping[str, str] = {}
    is_rows: bool = False


def headers_of(headers: Headers) -> dict[str, bytes]:
    """By name in lower case; the last of a name counts, and one without a value does not."""
    return {name.lower(): value for name, value in headers if value is not None}


def read(record: Record, signature: Signature | None = None) -> Reading:
    """The value, understood as far as it can be; plain rows only with the signature of their model."""
    headers = headers_of(record.headers)
    content_type = headers.get("content-type", JSON.encode()).decode(errors="replace").partition(";")[0].strip().lower()
    # A request has no status: then it is one, or the original in a dead letter.
    role: Role = "outputs" if "status" in headers else "inputs"
    head_length = headers.get(HEAD_LENGTH.lower())
    value = record.value or b""
    try:
        if content_type == PROTOBUF:
            is_error = headers.get("status") == b"error"
            return _protobuf_error(value) if is_error else _protobuf(value, role)
        if content_type == OCTETS and head_length is None:
            return _rows(value, role, signature)
        return _json(value, None if head_length is None else int(head_length))
    except _UNLIKE:
        return Reading()


def json_line(document: Mapping[str, object]) -> bytes:
    """The document as one line, arrays of numbers in it included; NaN and infinity, which JSON has not, become null.

    No control character is in it. Raises `TypeError` for what is nested over 254 deep, or an integer of over 64 bits.
    """
    line = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
    if b"\x7f" not in line and b"\xc2" not in line:  # most have neither: 0.1 ms for 2 MB, the search is 11 ms
        return line
    return _CONTROLS.sub(lambda found: b"\\u00%02x" % found[0][-1], line)


def _json(value: bytes, head_length: int | None) -> Reading:
    head, tail = split(value, len(value) if head_length is None else head_length)
    document = orjson.loads(head)
    named = {name: document[name] for name in _NAMES if isinstance(document.get(name), str)}
    if isinstance(document.get("error"), str):
        return Reading(error=document["error"], named=named)
    role: Role = "outputs" if "outputs" in document and "inputs" not in document else "inputs"
    tensors = []
    for entry in document[role]:
        size = entry.get("parameters", {}).get("binary_data_size")
        tensors.append(_inline(entry) if size is None else _binary(entry, tail[:size]))
        tail = tail[size or 0 :]
    return Reading(role, tensors, named=named)


_NAMES = ("model_name", "model_version", "id")


def _inline(entry: Mapping[str, Any]) -> ReadTensor:
    data = entry["data"]
    if not isinstance(data, list):
        raise TypeError
    return ReadTensor(str(entry["name"]), str(entry["datatype"]), _shape(entry["shape"]), data)


def _binary(entry: Mapping[str, Any], raw: memoryview) -> ReadTensor:
    return _from_bytes(str(entry["name"]), str(entry["datatype"]), _shape(entry["shape"]), raw)


def _shape(shape: Sequence[object]) -> list[int]:
    return [int(str(dimension)) for dimension in shape]


def _from_bytes(name: str, datatype: str, shape: Sequence[int], raw: bytes | memoryview) -> ReadTensor:
    spec = TensorSpec(name, datatype, tuple(shape[1:]))
    tensor = from_bytes(raw, spec, math.prod(shape))
    # Strings are listed: of objects there is no array that JSON could take.
    listed = tensor.tolist() if isinstance(tensor, np.ndarray) else np.frombuffer(tensor, spec.dtype)
    return ReadTensor(name, datatype, shape, listed)


def _protobuf_error(value: bytes) -> Reading:
    message, body_id = oip_protobuf.read_error(value)
    return Reading(error=message, named={"id": body_id} if body_id else {})


def _protobuf(value: bytes, role: Role) -> Reading:
    named, found = oip_protobuf.read_tensors(value, role)
    tensors = [
        _from_bytes(name, datatype, shape, held) if isinstance(held, bytes) else ReadTensor(name, datatype, shape, held)
        for name, datatype, shape, held in found
    ]
    return Reading(role, tensors, named=named)


def _rows(value: bytes, role: Role, signature: Signature | None) -> Reading:
    if signature is None:
        return Reading(role, is_rows=True)
    spec = _row_spec(signature, role)
    if spec is None:
        return Reading(role)
    array = np.frombuffer(value, DTYPES[spec.datatype])
    if spec.row_bytes is None:
        return Reading(role, [ReadTensor(spec.name, spec.datatype, None, array)])
    rows, rest = divmod(len(value), spec.row_bytes)
    if rest:
        return Reading(role)
    return Reading(role, [ReadTensor(spec.name, spec.datatype, [rows, *(d or 0 for d in spec.dims)], array)])


def _row_spec(signature: Signature, role: Role) -> TensorSpec | None:
    """What rows are rows of; None for a model that has none."""
    specs = signature.outputs if role == "outputs" else signature.required
    return specs[0] if len(specs) == 1 and not specs[0].is_text else None
