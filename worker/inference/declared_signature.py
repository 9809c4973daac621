"""Makes the `Signature` of a loaded model, or refuses the model with the cause; docs/models.md has the cures.

Reads the inputs and outputs that a session declares, and runs nothing. The warm-up shows whether the outputs are as
declared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from worker.core.failures import BadConfiguration, listed
from worker.core.records import Array, Value
from worker.core.tensors.signature import MAX_DIMENSIONS, Signature
from worker.core.tensors.specs import DTYPES, TensorSpec
from worker.inference.session import Session

if TYPE_CHECKING:
    from worker.settings import ModelSettings

_WORDS = {"FP16": "float16", "FP32": "float", "FP64": "double", "BYTES": "string"}
# ONNX Runtime's names of the types.
TYPES = {datatype: f"tensor({_WORDS.get(datatype, datatype.lower())})" for datatype in DTYPES}
_DATATYPES = {name: datatype for datatype, name in TYPES.items()}

_DEFAULTS = "WORKER_MODEL__INPUT_DEFAULTS"
_EXPORT, _MEND = "docs/models.md#exporting-a-model", "docs/models.md#mending-a-finished-file"


class Declared(NamedTuple):
    """A session's declaration. `constants`: inputs without a batch axis, with the operator's value for all requests.

    `fixed_rows`: the number of rows that the model was exported for; None unless all inputs share one number.
    `item_axes`: outputs whose first axis has a name that no input's first axis has.
    """

    signature: Signature
    constants: Mapping[str, Array]
    fixed_rows: int | None
    item_axes: Sequence[str] = ()


def declared_by(session: Session, settings: ModelSettings, max_rows: int, *, max_batch_size: int = 2) -> Declared:
    """Read a session's declaration. Raises `BadConfiguration`.

    Every input of the signature has a batch axis, which is dynamic, or fixed where these settings allow it.
    """
    nodes, outputs = session.get_inputs(), session.get_outputs()
    constants = _constants(nodes, settings.input_defaults)
    inputs = [node for node in nodes if node.name not in constants]
    if not inputs or not outputs:
        raise BadConfiguration(f"the model has no {'outputs' if inputs else 'inputs'} ({_EXPORT})")
    takes, gives = ([spec_of(role, node) for node in side] for role, side in (("input", inputs), ("output", outputs)))
    signature = Signature(settings.name, settings.version, tuple(takes), tuple(gives), max_rows)
    if without := [node.name for node in inputs if not node.shape]:  # a tensor of unknown rank looks so, too
        raise BadConfiguration(
            f"input {', '.join(without)} has no batch axis, or none that the file tells: give it the value that it has "
            f"for all requests ({_value_of(without)}), or export the model with one ({_MEND})"
        )
    axes = {node.shape[0] for node in inputs}
    rows = next(iter(axes)) if len(axes) == 1 and isinstance(inputs[0].shape[0], int) else None
    _check_rows(inputs, rows, settings, max_batch_size)
    defaults = {name: value for name, value in settings.input_defaults.items() if name not in constants}
    signature = _with_defaults(signature, defaults)
    _check_askable(signature)
    named = [node for node in outputs if node.shape and isinstance(node.shape[0], str)]
    return Declared(signature, constants, rows, [node.name for node in named if node.shape[0] not in axes])


def _constants(nodes: Sequence[Any], values: Mapping[str, Value]) -> Mapping[str, Array]:
    """Scalars that have a value; if the first axis of some input is dynamic, also inputs of fixed size with a value."""
    has_rows = any(node.shape and not isinstance(node.shape[0], int) for node in nodes)
    found: dict[str, Array] = {}
    for node in nodes:
        is_fixed = has_rows and all(isinstance(axis, int) for axis in node.shape)
        if node.name in values and node.type in _DATATYPES and (is_fixed or not node.shape):
            spec = TensorSpec(node.name, _DATATYPES[node.type], tuple(node.shape))
            _check_value(spec, values[node.name])
            found[node.name] = np.full(node.shape, values[node.name], DTYPES[spec.datatype])
    return found


def spec_of(role: str, node: Any) -> TensorSpec:
    """The spec of a session's input or output. Raises `BadConfiguration` for a type that no request can have."""
    datatype = _DATATYPES.get(node.type)
    if datatype is None:
        raise BadConfiguration(
            f"{role} {node.name} is of type {node.type}, and a tensor of one of {', '.join(DTYPES)} is needed: "
            f"{_tensor_cure(node.type)}"
        )
    dims = node.shape[1:]
    return TensorSpec(
        node.name,
        datatype,
        tuple(d if isinstance(d, int) else None for d in dims),
        tuple(d if isinstance(d, str) else None for d in dims),
    )


def _tensor_cure(declared: str) -> str:
    """The way to a tensor that a request or an answer can have, from another type."""
    if declared.startswith("seq(map("):
        return f'convert the classifier with options={{"zipmap": False}} ({_EXPORT})'
    if declared.startswith("tensor("):
        return "cast it in the model, or export it with one of these"
    return f"take it out of the model, or make a tensor of it ({_MEND})"


def _check_rows(inputs: Sequence[Any], rows: int | None, settings: ModelSettings, max_batch_size: int) -> None:
    """Raises `BadConfiguration` unless all inputs take any number of rows, or `rows` where the settings allow it."""
    fixed = [node.name for node in inputs if isinstance(node.shape[0], int)]
    if not fixed or (rows and settings.fixed_batch == "pad") or rows == max_batch_size == 1:
        return
    as_it_is = ""  # some exporters write 0 for any number of rows
    if rows is None and len(fixed) < len(inputs):
        as_it_is = f"Give one that all requests share its value ({_value_of(fixed)}), or "
    elif rows:
        least = ", as does WORKER_BATCHING__MAX_BATCH_SIZE=1" if rows == 1 else ""
        as_it_is = f"If that axis is the batch, WORKER_MODEL__FIXED_BATCH=pad runs it as it is{least}; or "
    shapes = listed(f"{node.name} {list(node.shape)}" for node in inputs)
    raise BadConfiguration(
        f"the model was exported for a fixed number of rows ({shapes}: the first axis must be dynamic). {as_it_is}"
        f"export it with a dynamic one, or mend the file ({_MEND})"
    )


def _check_askable(signature: Signature) -> None:
    """Raises `BadConfiguration` for inputs that no request can bring."""
    for spec in signature.required:
        if 0 in spec.dims or len(spec.dims) >= MAX_DIMENSIONS:
            raise BadConfiguration(
                f"input {spec}: a request's tensor may not be empty, and have at most {MAX_DIMENSIONS} dimensions: "
                f"export the model with other ones, or give it a default ({_value_of([spec.name])})"
            )


def _value_of(names: Sequence[str]) -> str:
    """The setting that gives these inputs a value."""
    values = ", ".join(f"{json.dumps(name)}: …" for name in names)
    return f"{_DEFAULTS}='{{{values}}}'"


def _with_defaults(signature: Signature, values: Mapping[str, Value]) -> Signature:
    """The signature with these values for inputs that a request leaves out. Raises `BadConfiguration`."""
    if unknown := values.keys() - {spec.name for spec in signature.inputs}:
        raise BadConfiguration(f"{_DEFAULTS}: the model has no input {min(unknown)}, it takes {signature.takes}")
    inputs = tuple(replace(spec, default=values.get(spec.name)) for spec in signature.inputs)
    completed = replace(signature, inputs=inputs)
    if not completed.required:
        raise BadConfiguration(f"{_DEFAULTS}: every input has a default: leave out what each request brings")
    for spec in inputs:
        if spec.default is not None:
            _check_value(spec, spec.default)
    return completed


def _check_value(spec: TensorSpec, value: Value) -> None:
    """Raises `BadConfiguration` for a value that this input cannot have."""
    if not spec.can_be(value):
        raise BadConfiguration(
            f"{_DEFAULTS}: {spec.name} is {spec.datatype} and cannot be {value!r}: give {spec.values}"
        )
