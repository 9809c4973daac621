"""The contract of answers to records, as a JSON Schema: for readers, and for the tools that show it to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worker.codecs.records.answers import Keep
from worker.core.tensors.specs import TensorSpec

_TYPES = {"b": "boolean", "f": "number", "O": "string"}

Schema = dict[str, Any]


def json_schema(
    fields: Sequence[TensorSpec], keep: Keep = (), *, has_rows: bool = False, nulls: bool = False
) -> Schema:
    """The schema of an answer with these fields. `nulls`: null stands for NaN and infinity.

    A kept field may be anything: the record says what it is.
    """
    kept: dict[str, Schema] = {} if keep == "all" else {name: {} for name in keep}
    own = {spec.name: _field(spec, has_rows=has_rows, nulls=nulls) for spec in fields}
    schema: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": [*kept, *own],
        "properties": {**kept, **own},
        "additionalProperties": keep == "all",
    }
    return schema


def _field(spec: TensorSpec, *, has_rows: bool, nulls: bool) -> Schema:
    kind = _TYPES.get(spec.dtype.kind, "integer")
    schema: Schema = {"type": [kind, "null"] if nulls and spec.is_float else kind}
    for dim in reversed(spec.dims):
        schema = {"type": "array", "items": schema}
        if dim is not None:
            schema |= {"minItems": dim, "maxItems": dim}
    return {"type": "array", "minItems": 1, "items": schema} if has_rows else schema
