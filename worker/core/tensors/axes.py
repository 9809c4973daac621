"""Finds in a model the axes that the operator names: which inputs and which outputs have them.

Dimensions with one name in the model's file are one axis. For outputs the file is not reliable enough, and many files
say nothing, so two runs at two lengths show if an output is as long as an axis. Refuses inputs that cannot be padded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite

from worker.core.failures import BadConfiguration
from worker.core.records import Value
from worker.core.tensors.buckets import Axis, Spot, WantedAxis
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

SETTING = "WORKER_BATCHING__BUCKETS"
# The most bytes of one padded row; no request in Kafka is larger. The warm-up of larger rows could take all memory.
LARGEST_ROW = 1_000_000_000
Dims = Sequence[int]


def axes_of(signature: Signature, named: Iterable[WantedAxis]) -> tuple[Axis, ...]:
    """The axes of this model that the operator named. Raises `BadConfiguration`."""
    axes = [_axis(signature, axis) for axis in named]
    taken: set[Spot] = set()
    for axis in axes:
        if not taken.isdisjoint(axis.inputs):
            raise BadConfiguration(f"{SETTING}: {axis.name} is padded twice; name an axis once, with all that share it")
        taken.update(axis.inputs)
    return tuple(axes)


def check_weight(signature: Signature) -> None:
    """Raises `BadConfiguration` if a row is larger than any request, because the start would allocate it."""
    longest = {spot: axis.boundaries[-1] for axis in signature.axes for spot in axis.inputs}
    shapes = tuple(
        tuple(longest.get(Spot(at, n), dim or 1) for n, dim in enumerate(spec.dims))
        for at, spec in enumerate(signature.inputs)
    )
    weight = signature.buckets.row_bytes(shapes)
    if weight > LARGEST_ROW:
        cure = f"lower the last boundary of {SETTING}" if longest else "export the model for smaller rows"
        raise BadConfiguration(
            f"one row takes {weight} bytes at most, more than any request can have ({LARGEST_ROW}): {cure}"
        )


def unpadded_in_place(signature: Signature, axis: Axis) -> Sequence[Spot]:
    """The dynamic axes at this axis's position in other inputs that are not padded. Some must be as long as this axis.

    Some exporters give one axis two names, and others give it none.
    """
    place = next(iter(axis.inputs)).dimension
    padded = {spot for other in signature.axes for spot in other.inputs}
    spots = [Spot(at, place) for at, spec in enumerate(signature.inputs) if spec.dims[place : place + 1] == (None,)]
    return [spot for spot in spots if spot not in padded]


def _axis(signature: Signature, axis: WantedAxis) -> Axis:
    named = _spot(signature, axis.input, axis.axis)
    symbol = signature.inputs[named.tensor].symbol(named.dimension)
    inputs = {named: signature.inputs[named.tensor].blank if axis.pad is None else axis.pad}
    for name, pad in axis.shared_by.items():
        inputs[_spot(signature, name, axis.axis)] = pad
    for at, spec in enumerate(signature.inputs):
        for dimension in range(len(spec.dims)):
            if symbol is not None and spec.symbol(dimension) == symbol:
                inputs.setdefault(Spot(at, dimension), spec.blank)
    for spot, pad in inputs.items():
        _check_pad(signature.inputs[spot.tensor], pad)
    return Axis(f"input {axis.input} axis {axis.axis}", axis.boundaries, inputs)


def _spot(signature: Signature, name: str, axis: int) -> Spot:
    """Where that axis of that input is. Raises `BadConfiguration` if there is nothing to pad."""
    names = [spec.name for spec in signature.inputs]
    if name not in names:
        raise BadConfiguration(f"{SETTING}: the model has no input {name}; it takes {signature.takes}")
    spec = signature.inputs[names.index(name)]
    if not 1 <= axis <= len(spec.dims):
        raise BadConfiguration(f"{SETTING}: {spec} has no axis {axis}; the batch axis is 0 and is not padded")
    if spec.dims[axis - 1] is not None:
        raise BadConfiguration(
            f"{SETTING}: axis {axis} of {spec} has a fixed length, so every request has it: leave it out"
        )
    return Spot(names.index(name), axis - 1)


def _check_pad(spec: TensorSpec, pad: Value) -> None:
    """Raises `BadConfiguration` for a value that this input cannot hold, and for NaN: it would seem a request's NaN."""
    if not spec.can_be(pad) or (isinstance(pad, float) and not isfinite(pad)):
        raise BadConfiguration(
            f"{SETTING}: {spec.name} is {spec.datatype} and cannot be padded with {pad!r}: give {spec.values}"
        )


def other_lengths(axis: Axis) -> Sequence[int]:
    """Lengths other than the first boundary. The first length that runs shows which outputs depend on the axis.

    With a single bucket it is not known at which other length the model runs: some need an even one, or a multiple.
    """
    first = axis.boundaries[0]
    return axis.boundaries[-1:] if len(axis.boundaries) > 1 else (first - 1, 2 * first, first // 2)


def with_outputs(
    signature: Signature, axis: Axis, lengths: tuple[int, int], shapes: tuple[Sequence[Dims], Sequence[Dims]]
) -> Axis:
    """The axis with the outputs that have it. Two runs that differed only in its length gave outputs of these shapes.

    Raises `BadConfiguration` for an output that depends on the axis but is not as long, because it cannot be cut back.
    """
    outputs: list[Spot] = []
    for at, (short, long) in enumerate(zip(*shapes, strict=True)):
        seen = list(zip(short, long, strict=False))[1:]
        if len(short) != len(long) or any(one != other and (one, other) != lengths for one, other in seen):
            raise BadConfiguration(
                f"{SETTING}: output {signature.outputs[at].name} has shape {list(short)} where {axis.name} is "
                f"{lengths[0]} and {list(long)} where it is {lengths[1]}, so its padding cannot be cut off: leave the "
                "axis or that boundary out, or export the model without this output"
            )
        outputs += [Spot(at, dimension) for dimension, pair in enumerate(seen) if pair == lengths]
    return replace(axis, outputs=tuple(outputs))


def blank_lengths(axes: Iterable[Axis]) -> Mapping[Spot, int]:
    """The lengths of the padded axes in a blank batch by default: their first boundaries."""
    return {spot: axis.boundaries[0] for axis in axes for spot in axis.inputs}
