"""Reads the value of a record of any topic: answers above all, and also requests and dead letters as far as possible.

`consume` uses it; the worker's own path does not. It trusts nothing and refuses nothing: a value that does not fit its
headers is shown as bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import orjson

from worker.codecs.encodings.binary_data import split
from worker.codecs.encodings.elements import from_bytes
from worker.codecs.wire_contract import HEAD_LENGTH, JSON, OCTETS, PROTOBUF
from worker.core.failures import Reject
from worker.core.records import Headers, Record
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import DTYPES, TensorSpec

Role = Literal["outputs", "inputs"]
# The content of a value: `outputs` or `inputs`, each a list of tensors (`name`, `datatype`, `shape`, and flat `data`,
# an array or a list), an `error`, or a `record`, a line of JSON as bytes; and `model_name`, `model_version`
# and `id`, if present. It is empty if the value was not understood.
Reading = Mapping[str, Any]

# The exceptions that a value which does not fit its headers can raise while it is read.
_UNLIKE = (Reject, ValueError, KeyError, TypeError, AttributeError)
_NAMES = ("model_name", "model_version", "id")
# DEL and the C1 controls in UTF-8: JSON allows them raw, and a terminal obeys them.
_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]")


def headers_of(headers: Headers) -> dict[str, bytes]:
    """Returns headers by name in lower case. The last header of a name counts; headers without a value do not."""
    return {name.lower(): value for name, value in headers if value is not None}


def read(record: Record, signature: Callable[[], Signature | None] = lambda: None) -> Reading:
    """Reads the value as far as it can be understood. `signature` returns the model's, which plain rows need."""
    headers = headers_of(record.headers)
    content_type = headers.get("content-type", JSON.encode()).decode(errors="replace").partition(";")[0].strip().lower()
    # A request has no status, and neither has the original request in a dead letter.
    role: Role = "outputs" if "status" in headers else "inputs"
    head_length = headers.get(HEAD_LENGTH.lower())
    value = record.value or b""
    try:
        if content_type == PROTOBUF:
            return _protobuf(value, role, is_error=headers.get("status") == b"error")
        if content_type == OCTETS and head_length is None:
            return _rows(value, role, signature())
        return _json(value, len(value) if head_length is None else int(head_length))
    except _UNLIKE:
        return {}


def json_line(document: Mapping[str, object]) -> bytes:
    """Returns the document, which may hold numeric arrays, as one line. NaN and infinity become null: JSON lacks them.

    The line has no control character. Raises `TypeError` for nesting over 254 deep, or an integer of over 64 bits.
    """
    line = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
    if b"\x7f" not in line and b"\xc2" not in line:  # true for most lines: 0.1 ms for 2 MB; the regex takes 11 ms
        return line
    return _CONTROLS.sub(lambda found: b"\\u00%02x" % found[0][-1], line)


def _protobuf(value: bytes, role: Role, *, is_error: bool) -> Reading:
    from worker.codecs.encodings import oip_protobuf  # noqa: PLC0415 - protobuf takes its time

    if is_error:
        message, body_id = oip_protobuf.read_error(value)
        return {"error": message} | ({"id": body_id} if body_id else {})
    named, found = oip_protobuf.read_tensors(value, role)
    return {**named, role: [_tensor(*one) for one in found]}


def _json(value: bytes, head_length: int) -> Reading:
    head, tail = split(value, head_length)
    document = orjson.loads(head)
    named = {name: document[name] for name in _NAMES if isinstance(document.get(name), str)}
    if isinstance(document.get("error"), str):
        return {**named, "error": document["error"]}
    role: Role = "outputs" if "outputs" in document and "inputs" not in document else "inputs"
    tensors = []
    for entry in document[role]:
        size = entry.get("parameters", {}).get("binary_data_size")
        held = entry["data"] if size is None else bytes(tail[:size])
        if not isinstance(held, list | bytes):
            raise TypeError
        tensors.append(_tensor(str(entry["name"]), str(entry["datatype"]), [int(str(d)) for d in entry["shape"]], held))
        tail = tail[size or 0 :]
    return {**named, role: tensors}


def _tensor(name: str, datatype: str, shape: Sequence[int] | None, held: object) -> dict[str, object]:
    """Makes a tensor's dictionary. `held`: its elements, or the bytes of all of them."""
    if isinstance(held, bytes) and shape is not None:
        spec = TensorSpec(name, datatype, tuple(shape[1:]))
        tensor = from_bytes(held, spec, math.prod(shape))
        held = tensor if isinstance(tensor, list) else np.frombuffer(tensor, spec.dtype)
    return {"name": name, "datatype": datatype, "shape": shape, "data": held}


def _rows(value: bytes, role: Role, signature: Signature | None) -> Reading:
    """Reads plain rows, which need a model with one input, or output, of numbers."""
    specs = () if signature is None else signature.outputs if role == "outputs" else signature.required
    if len(specs) != 1 or specs[0].is_text:
        return {}
    (spec,) = specs
    array = np.frombuffer(value, DTYPES[spec.datatype])
    if spec.row_bytes is None:
        return {role: [_tensor(spec.name, spec.datatype, None, array)]}
    rows, rest = divmod(len(value), spec.row_bytes)
    shape = [rows, *(d or 0 for d in spec.dims)]
    return {} if rest else {role: [_tensor(spec.name, spec.datatype, shape, array)]}
