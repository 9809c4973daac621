"""What a loaded model takes and gives: its `Signature`, or a refusal that says how to export it differently.

Reads the inputs and outputs that a session declares, and runs nothing. Whether the outputs are as declared is seen in
the warm-up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import onnxruntime as ort

from worker.core.failures import BadConfiguration
from worker.core.listing import listed
from worker.core.tensors.signature import MAX_DIMENSIONS, Signature
from worker.core.tensors.specs import DTYPES, TensorSpec
from worker.inference.input_defaults import with_defaults
from worker.inference.onnx_file.graph import unranked_inputs
from worker.inference.onnx_file.item_axes import item_makers
from worker.inference.onnx_file.reading import Graph
from worker.settings import ModelSettings

_DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}


# Names that exporters and people give to the batch: `batch`, `batch_size`, `N`.
_BATCH_NAMES = re.compile(r".*batch.*|n|b|bs", re.IGNORECASE)
_SURE_BATCH_NAMES = re.compile(r".*batch.*", re.IGNORECASE)


def signature_of(
    session: ort.InferenceSession,
    settings: ModelSettings,
    max_rows: int,
    *,
    graph: Graph = b"",
    max_batch_size: int = 2,
) -> Signature:
    """The signature, every input with a batch axis: a dynamic one, or one that these settings allow to be fixed.

    `graph` says what the session does not. Raises `BadConfiguration` with the cure.
    """
    inputs, outputs = _declared(session)
    _check_both(len(inputs), len(outputs))
    signature = Signature(
        settings.name,
        settings.version,
        tuple(_spec("input", node) for node in inputs),
        tuple(_spec("output", node) for node in outputs),
        max_rows,
    )
    _check_batch_axis(inputs, graph)
    _check_batch_is_first(inputs)
    _check_rows(inputs, fixed_rows(session), settings, max_batch_size)
    signature = with_defaults(signature, settings.input_defaults)
    _check_askable(signature)
    return signature


def check_item_axes(session: ort.InferenceSession, graph: Graph) -> None:
    """Raises `BadConfiguration` for an output whose first axis counts found items, as its name and the graph say."""
    batches = {node.shape[0] for node in session.get_inputs()}
    named = {node.name: node.shape for node in session.get_outputs() if node.shape and isinstance(node.shape[0], str)}
    own = [name for name, shape in named.items() if shape[0] not in batches]
    for name, operator in item_makers(graph, own).items():
        or_without = without(name) if len(session.get_outputs()) > 1 else ""
        raise BadConfiguration(
            f"output {name} {named[name]} has on its first axis what {operator} finds, and not a row for each that "
            "goes in, so an answer cannot be given back to its request: export the model with a fixed number of items "
            "for each row, filled up, behind the batch ([batch, 100, …]), or for one row alone (inputs and "
            f"outputs [1, …], under WORKER_BATCHING__MAX_BATCH_SIZE=1){or_without}. "
            "If that axis is the batch, give it the name that it has in the inputs: model = onnx.load(path); "
            f"v = next(v for v in model.graph.output if v.name == {name!r}); "
            f"v.type.tensor_type.shape.dim[0].dim_param = {next(iter(batches))!r}; onnx.save(model, path)"
        )


def _declared(session: ort.InferenceSession) -> tuple[Sequence[Any], Sequence[Any]]:
    """Its inputs and outputs. Raises `BadConfiguration` when one has a name that is no text."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    try:
        _ = [(node.name, node.shape) for node in (*inputs, *outputs)]  # decoded when they are asked for
    except UnicodeDecodeError as error:
        raise BadConfiguration(
            f"an input, an output or an axis of the model is named {error.object!r}, which is not UTF-8: export it "
            "with other names"
        ) from error
    return inputs, outputs


def fixed_rows(session: ort.InferenceSession) -> int | None:
    """The number of rows that the model was exported for; None when it is not one for all inputs."""
    axes = {node.shape[0] for node in session.get_inputs()}
    rows = axes.pop()
    return rows if isinstance(rows, int) and not axes else None


def _spec(role: str, node: Any) -> TensorSpec:
    datatype = _DATATYPES.get(node.type)
    if datatype is None:
        raise BadConfiguration(f"{role} {node.name} is of type {node.type}: {_cure(role, node)}")
    dims = node.shape[1:]
    return TensorSpec(
        node.name,
        datatype,
        tuple(d if isinstance(d, int) else None for d in dims),
        tuple(d if isinstance(d, str) else None for d in dims),
    )


def _cure(role: str, node: Any) -> str:
    kind = node.type
    if "bfloat16" in kind:
        return "numpy has no such type; convert the model's inputs and outputs to FP32 or FP16, BF16 inside is fine"
    if kind.startswith("seq(map("):
        return (
            "export it as plain arrays (skl2onnx: options={'zipmap': False}, onnxmltools: zipmap=False). A finished "
            "file, CatBoost's too, whose output is then an array of a column for each class: model = onnx.load(path); "
            f"z = next(z for z in model.graph.node if {node.name!r} in z.output); model.graph.node.remove(z); "
            f"v = next(v for v in model.graph.output if v.name == {node.name!r}); "
            "v.CopyFrom(onnx.helper.make_tensor_value_info(z.input[0], onnx.TensorProto.FLOAT, None)); "
            "onnx.save(model, path)"
        )
    if kind.startswith("seq("):
        return "export its tensors one by one (onnx has SequenceAt to take them out), or the model without it"
    if kind.startswith("optional("):
        left_out = "; with a value in WORKER_MODEL__INPUT_DEFAULTS requests may leave it out"
        return f"export it as a plain tensor{left_out if role == 'input' else ''}"
    return f"a tensor of one of {', '.join(DTYPES)} is needed (BYTES are strings)"


def _check_both(inputs: int, outputs: int) -> None:
    if not inputs:
        raise BadConfiguration(
            "the model has no inputs, so no request could ask it anything: export it so that what requests bring is an "
            "input, not a constant"
        )
    if not outputs:
        raise BadConfiguration(
            "the model has no outputs, so no request could be answered: export it so that forward returns what is "
            "wanted. A finished file, where y is a float tensor inside: model = onnx.load(path); "
            "model.graph.output.add().CopyFrom(onnx.helper.make_tensor_value_info('y', onnx.TensorProto.FLOAT, None)); "
            "onnx.save(model, path)"
        )


def _check_batch_axis(inputs: Sequence[Any], graph: Graph) -> None:
    # ONNX Runtime shows a tensor of unknown rank as it shows a scalar: with no dimensions.
    without = [node.name for node in inputs if not node.shape]
    if not without:
        return
    unranked = unranked_inputs(graph)
    scalars = [name for name in without if name not in unranked]
    if scalars:
        raise BadConfiguration(
            f"input {', '.join(scalars)} has no batch axis: give it the value that it has for all requests "
            f"({_constant(scalars)}), or export the model so that it has one for each row"
        )
    raise BadConfiguration(
        f"the model's file does not say which shape input {', '.join(without)} has, so nothing says which of its axes "
        "is the batch: export it with shapes. A finished file, where 8 stands for that input's own sizes, or for names "
        "of those that are dynamic: model = onnx.load(path); "
        f"v = next(v for v in model.graph.input if v.name == {without[0]!r}); "
        "v.CopyFrom(onnx.helper.make_tensor_value_info(v.name, v.type.tensor_type.elem_type, ['batch', 8])); "
        "onnx.save(model, path)"
    )


def _check_batch_is_first(inputs: Sequence[Any]) -> None:
    """Raises `BadConfiguration` for an input whose batch is another axis, by its name: its time steps would be rows."""
    for node in inputs:
        at = _batch_elsewhere(node.shape)
        if at is not None:
            order = [at, *(n for n in range(len(node.shape)) if n != at)]
            raise BadConfiguration(
                f"input {node.name} {list(node.shape)} has its batch on axis {at}, by the name {node.shape[at]!r}, and "
                "what is on its first axis would be taken for requests: export the model with the batch first "
                "(PyTorch's recurrent layers and transformers: batch_first=True), or with a Transpose "
                f"(perm={order}) behind that input, and one before each output that has the batch there. If that axis "
                "is not the batch, give it another name: model = onnx.load(path); "
                f"v = next(v for v in model.graph.input if v.name == {node.name!r}); "
                f"v.type.tensor_type.shape.dim[{at}].dim_param = 'length'; onnx.save(model, path)"
            )


def _batch_elsewhere(shape: Sequence[int | str | None]) -> int | None:
    """The axis behind the first that is named as the batch is, and the first one is not.

    Behind a dynamic first axis, or one row, only a name with `batch` in it says so: N points look alike.
    """
    first = shape[0]
    names = _BATCH_NAMES if isinstance(first, int) and first > 1 else _SURE_BATCH_NAMES
    if isinstance(first, str) and _BATCH_NAMES.fullmatch(first):
        return None
    named = (at for at, axis in enumerate(shape) if at and isinstance(axis, str) and names.fullmatch(axis))
    return next(named, None)


def _check_askable(signature: Signature) -> None:
    """Raises `BadConfiguration` for inputs that no request can bring."""
    for spec in signature.required:
        if 0 in spec.dims:
            leave_out = f"WORKER_MODEL__INPUT_DEFAULTS='{{\"{spec.name}\": …}}' lets requests leave it out"
            larger = "export the model with another size of that axis, or with a dynamic one"
            raise BadConfiguration(
                f"input {spec} has no elements, and no request may bring an empty tensor: "
                f"{leave_out if len(signature.required) > 1 else larger}"
            )
        if len(spec.dims) >= MAX_DIMENSIONS:
            raise BadConfiguration(
                f"input {spec} has {len(spec.dims) + 1} dimensions, and a request's tensor at most {MAX_DIMENSIONS}: "
                "export the model so that it reshapes that input itself"
            )


def _check_rows(inputs: Sequence[Any], rows: int | None, settings: ModelSettings, max_batch_size: int) -> None:
    """Raises `BadConfiguration` unless all take any number of rows, or `rows` where that is allowed."""
    fixed = [node for node in inputs if isinstance(node.shape[0], int)]
    if not fixed or (rows and settings.fixed_batch == "pad") or rows == max_batch_size == 1:
        return
    if rows is not None:
        raise BadConfiguration(_fixed_axis(fixed, len(inputs), rows))
    claims = _claims(inputs)
    raise BadConfiguration(
        f"the inputs have no number of rows in common ({claims}): export the model with one for all of them, "
        "or with a dynamic first axis. An input whose rows are another axis, as those of a recurrent state are, has to "
        f"be transposed inside the model{_same_for_all(inputs)}"
    )


def _same_for_all(inputs: Sequence[Any]) -> str:
    """How to serve inputs of a fixed size beside others of any number of rows."""
    fixed = [node.name for node in inputs if all(isinstance(axis, int) for axis in node.shape)]
    if not fixed or not any(not isinstance(node.shape[0], int) for node in inputs):
        return ""
    return f". One that has the same value for all requests is given it by {_constant(fixed)}"


def _constant(names: Sequence[str]) -> str:
    """The setting that makes constants of inputs."""
    values = ", ".join(f"{json.dumps(name)}: …" for name in names)
    return f"WORKER_MODEL__INPUT_DEFAULTS='{{{values}}}'"


def _fixed_axis(fixed: Sequence[Any], inputs: int, rows: int) -> str:
    examples = "(example,)" if inputs == 1 else f"({', '.join(f'example_{n}' for n in range(1, inputs + 1))})"
    shapes = '({0: torch.export.Dim("batch")},)' + (f" * {inputs}" if inputs > 1 else "")
    return (
        f"the model was exported for a fixed number of rows ({_claims(fixed)}: the first axis must be dynamic). "
        f"{_as_it_is(fixed, rows)}"
        f'From PyTorch: torch.onnx.export(model, {examples}, "model.onnx", dynamo=True, dynamic_shapes={shapes}). '
        "A finished file, unless a Reshape inside holds the number too: model = onnx.load(path); "
        "[setattr(v.type.tensor_type.shape.dim[0], 'dim_param', 'batch') "
        "for v in [*model.graph.input, *model.graph.output]]; onnx.save(model, path)"
    )


def _as_it_is(fixed: Sequence[Any], rows: int) -> str:
    """How to serve it without another file. Some exporters write 0 for any number of rows."""
    if rows == 0:
        return ""
    if rows == 1:
        return "WORKER_BATCHING__MAX_BATCH_SIZE=1 runs it as it is, each row alone. "
    dynamic = any(not isinstance(axis, int) for node in fixed for axis in node.shape[1:])
    caution = "If the first axis is the batch and not, say, the time, " if dynamic else ""
    return f"{caution}WORKER_MODEL__FIXED_BATCH=pad runs it as it is, with short batches padded to that number. "


def _claims(inputs: Sequence[Any]) -> str:
    return listed(f"{node.name} {list(node.shape)}" for node in inputs)


def without(output: str) -> str:
    """How to do without an output beside others."""
    return (
        f", or without this one. A finished file: model = onnx.load(path); "
        f"model.graph.output.remove(next(v for v in model.graph.output if v.name == {output!r})); "
        "onnx.save(model, path)"
    )
