"""What a loaded model takes and gives: its `Signature`, or a refusal that says how to export it differently.

Reads a session's declared inputs and outputs, and runs nothing. What a model only claims about its outputs is settled
by the warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnxruntime as ort

from worker.core.failures import BadConfiguration
from worker.core.signature import DTYPES, MAX_DIMENSIONS, Signature, TensorSpec
from worker.inference.input_defaults import with_defaults
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


def signature_of(session: ort.InferenceSession, settings: ModelSettings, max_rows: int) -> Signature:
    """The signature, every input with a batch axis: a dynamic one, or one that these settings allow to be fixed.

    Raises `BadConfiguration` naming the cure.
    """
    inputs, outputs = _declared(session)
    if not inputs or not outputs:
        raise BadConfiguration(f"the model has {len(inputs)} inputs and {len(outputs)} outputs; it needs one of each")
    signature = Signature(
        settings.name,
        settings.version,
        tuple(_spec("input", node) for node in inputs),
        tuple(_spec("output", node) for node in outputs),
        max_rows,
    )
    _check_batch_axis(inputs)
    _check_rows(inputs, fixed_rows(session), settings)
    signature = with_defaults(signature, settings.input_defaults)
    _check_askable(signature)
    return signature


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
        raise BadConfiguration(f"{role} {node.name} is of type {node.type}: {_cure(node.type)}")
    dims = node.shape[1:]
    return TensorSpec(
        node.name,
        datatype,
        tuple(d if isinstance(d, int) else None for d in dims),
        tuple(d if isinstance(d, str) else None for d in dims),
    )


def _cure(kind: str) -> str:
    if "bfloat16" in kind:
        return "numpy has no such type; convert the model's inputs and outputs to FP32 or FP16, BF16 inside is fine"
    if kind.startswith("seq(map("):
        return "export it as plain arrays (skl2onnx: options={'zipmap': False}), or drop the output"
    if kind.startswith("seq("):
        return "export its tensors one by one (onnx has SequenceAt to take them out), or the model without it"
    if kind.startswith("optional("):
        return "export it as a plain tensor; with a value in WORKER_MODEL__INPUT_DEFAULTS requests may leave it out"
    return f"a tensor of one of {', '.join(DTYPES)} is needed (BYTES are strings)"


def _check_batch_axis(inputs: Sequence[Any]) -> None:
    # ONNX Runtime shows a tensor of unknown rank as it shows a scalar: with no dimensions.
    scalars = [node.name for node in inputs if not node.shape]
    if scalars:
        raise BadConfiguration(
            f"input {', '.join(scalars)} has no batch axis: make it a constant, or give it one value per row"
        )


def _check_askable(signature: Signature) -> None:
    """Raises `BadConfiguration` for inputs that no request can bring."""
    for spec in signature.required:
        if 0 in spec.dims:
            raise BadConfiguration(
                f"input {spec} has no elements, and no request may bring an empty tensor: "
                f"WORKER_MODEL__INPUT_DEFAULTS='{{\"{spec.name}\": …}}' lets requests leave it out"
            )
        if len(spec.dims) >= MAX_DIMENSIONS:
            raise BadConfiguration(
                f"input {spec} has {len(spec.dims) + 1} dimensions, and a request's tensor at most {MAX_DIMENSIONS}: "
                "export the model so that it reshapes that input itself"
            )


def _check_rows(inputs: Sequence[Any], rows: int | None, settings: ModelSettings) -> None:
    """Raises `BadConfiguration` unless all take any number of rows, or `rows` where that is allowed."""
    fixed = [node for node in inputs if isinstance(node.shape[0], int)]
    if not fixed or (rows and settings.fixed_batch == "pad"):
        return
    if rows:
        raise BadConfiguration(_fixed_axis(fixed, len(inputs)))
    claims = ", ".join(f"{node.name} {list(node.shape)}" for node in inputs)
    padded = "WORKER_MODEL__FIXED_BATCH is pad, and " if settings.fixed_batch == "pad" else ""
    raise BadConfiguration(
        f"{padded}the inputs have no number of rows in common ({claims}): export the model with one for all of them, "
        "or with a dynamic first axis. An input whose rows are another axis, as those of a recurrent state are, has to "
        "be transposed inside the model"
    )


def _fixed_axis(fixed: Sequence[Any], inputs: int) -> str:
    claims = ", ".join(f"{node.name} {list(node.shape)}" for node in fixed)
    examples = "(example,)" if inputs == 1 else f"({', '.join(f'example_{n}' for n in range(1, inputs + 1))})"
    shapes = '({0: torch.export.Dim("batch")},)' + (f" * {inputs}" if inputs > 1 else "")
    return (
        f"the model was exported for a fixed number of rows ({claims}: the first axis must be dynamic). "
        "WORKER_MODEL__FIXED_BATCH=pad runs it as it is, with short batches padded to that number. "
        f'From PyTorch: torch.onnx.export(model, {examples}, "model.onnx", dynamo=True, dynamic_shapes={shapes}). '
        "A finished file, unless a Reshape inside holds the number too: model = onnx.load(path); "
        "for v in [*model.graph.input, *model.graph.output]: "
        "v.type.tensor_type.shape.dim[0].dim_param = 'batch'; onnx.save(model, path)"
    )
