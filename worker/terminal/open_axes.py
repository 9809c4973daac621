"""How long axes are that the model's file leaves open, in what commands make up. Figures of a run hang on it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from worker.core.tensors.specs import TensorSpec


def open_axes(specs: Iterable[TensorSpec], shapes: Iterable[Sequence[int]]) -> dict[str, int]:
    """By input and axis, `input_ids:1`. `shapes`: of the inputs, the batch's axis left out."""
    return {
        f"{spec.name}:{axis}": length
        for spec, shape in zip(specs, shapes, strict=True)
        for axis, (dim, length) in enumerate(zip(spec.dims, shape, strict=True), 1)
        if dim is None
    }
