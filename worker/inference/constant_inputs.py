"""Inputs without a batch axis that the operator gives a value: the same for every request, so constants of the model.

A threshold, a sampling rate, a switch between training and inference. What requests bring has a row for each of them,
so such an input cannot be theirs. Its value is written behind the model's last byte, before ONNX Runtime reads it:
protobuf joins the parts of a message that comes twice, and an input with an initial value in the graph is none that has
to be fed. Owns nothing; the file stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from worker.core.records import Value
from worker.core.tensors.specs import DTYPES, TensorSpec
from worker.inference.input_defaults import check_value
from worker.inference.onnx_file.graph import DeclaredInput, declared_inputs
from worker.inference.onnx_file.protobuf_fields import as_field
from worker.inference.onnx_file.reading import Changed, Graph, content_of, folder_of

# TensorProto.DataType, as far as requests could have it.
_ELEMENTS = {
    1: "FP32",
    2: "UINT8",
    3: "INT8",
    4: "UINT16",
    5: "INT16",
    6: "INT32",
    7: "INT64",
    8: "BYTES",
    9: "BOOL",
    10: "FP16",
    11: "FP64",
    12: "UINT32",
    13: "UINT64",
}
# Field numbers of onnx.proto: the model's graph, the graph's initial values, and what one has.
_GRAPH, _INITIALIZER = 7, 5
_DIMS, _DATA_TYPE, _STRINGS, _NAME, _RAW = 1, 2, 6, 8, 9


def with_constants(graph: Graph, values: Mapping[str, Value]) -> tuple[Graph, Mapping[str, Value]]:
    """The model in which inputs without a batch axis have these values, and the values that are left for others.

    Raises `BadConfiguration` for a value that such an input cannot have.
    """
    if not values:
        return graph, values
    constants = {
        declared.name: declared for declared in _without_rows(declared_inputs(graph)) if declared.name in values
    }
    if not constants:
        return graph, values
    written = b"".join(_initial(declared, values[name]) for name, declared in constants.items())
    changed = Changed(content_of(graph) + as_field(_GRAPH, written), folder_of(graph))
    return changed, {name: value for name, value in values.items() if name not in constants}


def _without_rows(inputs: Mapping[str, DeclaredInput]) -> Iterator[DeclaredInput]:
    """Scalars, and where another input has any number of rows those whose size is fixed in every axis."""
    has_rows = any(declared.dims and declared.dims[0] is None for declared in inputs.values())
    for declared in inputs.values():
        is_fixed = has_rows and declared.dims is not None and None not in declared.dims
        if declared.datatype in _ELEMENTS and (is_fixed or declared.dims == ()):
            yield declared


def _initial(declared: DeclaredInput, value: Value) -> bytes:
    """The graph's field with that value for every element."""
    dims = [dim or 0 for dim in declared.dims or ()]
    spec = TensorSpec(declared.name, _ELEMENTS[declared.datatype], tuple(dims))
    check_value(spec, value)
    elements = math.prod(dims)
    if isinstance(value, str):
        content = as_field(_STRINGS, value.encode()) * elements
    else:
        content = as_field(_RAW, np.array(value, DTYPES[spec.datatype]).tobytes() * elements)
    tensor = b"".join(as_field(_DIMS, dim) for dim in dims) + as_field(_DATA_TYPE, declared.datatype)
    return as_field(_INITIALIZER, tensor + as_field(_NAME, declared.name.encode()) + content)
