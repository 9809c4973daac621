"""Requests of unequal lengths in one array, and each one's own part of what the model makes of it.

    a a a · ·        rows of requests a and b, padded to a bucket of 5;
    b b b b ·        outputs that have the axis are cut back: 3 of a, 4 of b

Which axes are padded, to what and with what is said by the model's `Buckets`; here arrays are made and cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from worker.core.records import Array, Request
from worker.core.tensors.buckets import Buckets, Shapes
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec


def padded(signature: Signature, requests: Sequence[Request], rows: int, shapes: Shapes) -> Mapping[str, Array]:
    """One array of shape (rows, *dims) per input, its dims those of `shapes`: what no request fills is padding."""
    pads = signature.buckets.pads
    return {
        spec.name: _filled(spec, requests, at, np.full((rows, *shapes[at]), pads.get(at, 0), spec.dtype))
        for at, spec in enumerate(signature.inputs)
    }


def _filled(spec: TensorSpec, requests: Sequence[Request], at: int, array: Array) -> Array:
    stop = 0
    for request in requests:
        start, stop = stop, stop + request.rows
        dims = request.shapes[at]
        array[(slice(start, stop), *map(slice, dims))] = spec.array(request.tensors[at], (request.rows, *dims))
    return array


def own_parts(buckets: Buckets, outputs: Sequence[Array], shapes: Shapes, start: int, stop: int) -> tuple[Array, ...]:
    """Rows `start` to `stop` of each output, as long as a request of these shapes is itself. Views."""
    parts = [output[start:stop] for output in outputs]
    for axis in buckets.axes:
        length = axis.length(shapes)
        for tensor, dimension in axis.outputs:
            parts[tensor] = parts[tensor][(slice(None),) * (dimension + 1) + (slice(length),)]
    return tuple(parts)


def misfit(buckets: Buckets, outputs: Sequence[Array], shapes: Shapes) -> str | None:
    """What is wrong with the lengths of outputs that a batch of these shapes gave; None when nothing is."""
    for axis in buckets.axes:
        length = axis.length(shapes)
        for tensor, dimension in axis.outputs:
            if outputs[tensor].shape[dimension + 1 : dimension + 2] != (length,):
                return f"{axis.name} is {length} long in the batch, output {tensor} has shape {outputs[tensor].shape}"
    return None
