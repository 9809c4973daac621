"""The operator's defaults for inputs, compared with the model: what does not fit is refused at start, with the cure.

How an input that a request leaves out is filled in: `worker.core.tensors.left_out_inputs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from worker.core.failures import BadConfiguration
from worker.core.records import Value
from worker.core.tensors.element_values import can_be, wanted
from worker.core.tensors.left_out_inputs import filling_of
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

_VARIABLE = "WORKER_MODEL__INPUT_DEFAULTS"


def with_defaults(signature: Signature, values: Mapping[str, Value]) -> Signature:
    """The signature with these values for the inputs of these names. Raises `BadConfiguration`."""
    unknown = values.keys() - {spec.name for spec in signature.inputs}
    if unknown:
        raise BadConfiguration(
            f"{_VARIABLE}: the model has no input {min(unknown)}, it takes {signature.takes}: correct the name, or "
            "leave it out"
        )
    inputs = tuple(_with(spec, values) for spec in signature.inputs)
    completed = replace(signature, inputs=inputs)
    if not completed.required:
        raise BadConfiguration(
            f"{_VARIABLE}: every input has a default, and a request must give something: leave out what each request "
            "brings"
        )
    for spec in inputs:
        _check_lengths(spec, completed)
    return completed


def _with(spec: TensorSpec, values: Mapping[str, Value]) -> TensorSpec:
    if spec.name not in values:
        return spec
    value = values[spec.name]
    check_value(spec, value)
    return replace(spec, default=value)


def check_value(spec: TensorSpec, value: Value) -> None:
    """Raises `BadConfiguration` for a value that this input cannot have."""
    if not can_be(spec, value):
        raise BadConfiguration(
            f"{_VARIABLE}: {spec.name} is {spec.datatype} and cannot be {value!r}: give {wanted(spec)}"
        )


def _check_lengths(spec: TensorSpec, signature: Signature) -> None:
    """Raises `BadConfiguration` when no other input says how long this one is."""
    if spec.default is None:
        return
    for at, known in enumerate(filling_of(spec, signature.inputs).lengths):
        if known == ():
            symbol = spec.symbol(at)
            lacks = f"has an axis named {symbol}" if symbol else f"has {len(spec.dims) + 1} dimensions"
            raise BadConfiguration(
                f"{_VARIABLE}: nothing says how long axis {at + 1} of {spec.name} is where a request leaves it out, "
                f"for no other input {lacks}: give both axes one name in the model (onnx.tools.update_model_dims), or "
                "take the default out"
            )
