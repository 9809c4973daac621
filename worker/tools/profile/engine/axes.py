"""Which axis of a model's inputs varies in length from request to request, and the setting that pads it.

Reads the signature alone. Axes that the model's file gives one name are one; the command line may put others to them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from worker.core.failures import BadConfiguration
from worker.core.tensors.axes import axes_of
from worker.core.tensors.buckets import Spot, WantedAxis
from worker.core.tensors.element_values import blank
from worker.core.tensors.left_out_inputs import InputAxis
from worker.core.tensors.signature import Signature


@dataclass(frozen=True, slots=True)
class LengthAxis:
    """What is padded as one: as the operator would name it, but for its boundaries, and where it is.

    `spots` begins with the input that gives the axis its name.
    """

    wanted: WantedAxis
    spots: tuple[Spot, ...]

    def setting(self, boundaries: Sequence[int]) -> dict[str, object]:
        """The value of WORKER_BATCHING__BUCKETS that pads it to these boundaries."""
        wanted = self.wanted
        shared = {"shared_by": dict(wanted.shared_by)} if wanted.shared_by else {}
        return {wanted.input: {"axis": wanted.axis, "boundaries": list(boundaries), "pad": wanted.pad, **shared}}

    def __str__(self) -> str:
        return f"{self.wanted.input}:{self.wanted.axis}"


def axis_of(signature: Signature, asked: str | None) -> LengthAxis:
    """The axis asked for as `input_ids:1` or `input_ids:1,mask:1`; None: the only dynamic one, as the file names them.

    Raises `BadConfiguration`, naming the candidates.
    """
    groups = _groups(signature)
    if not groups:
        raise BadConfiguration(
            f"there is nothing to pad: no axis of {signature.name} is dynamic but the batch's; it takes "
            f"{signature.takes}"
        )
    if asked is None:
        if len(groups) > 1:
            raise BadConfiguration(
                f"several axes are dynamic: say by --bucket-axis which one --lengths is about, {_listed(groups)}; or "
                "several that are always equally long, comma-separated"
            )
        return _axis(signature, groups)
    return _axis(signature, [_group_of(word, groups) for word in asked.split(",")])


def _groups(signature: Signature) -> list[list[InputAxis]]:
    groups: dict[object, list[InputAxis]] = {}
    for spec in signature.inputs:
        for at, dim in enumerate(spec.dims):
            if dim is None:
                place = InputAxis(spec.name, at + 1)
                groups.setdefault(spec.symbol(at) or place, []).append(place)
    return list(groups.values())


def _group_of(word: str, groups: Sequence[Sequence[InputAxis]]) -> list[InputAxis]:
    """The group with the axis asked for at its head."""
    if found := re.fullmatch(r"(.+):(\d+)", word.strip()):
        asked = InputAxis(found[1], int(found[2]))
        for group in groups:
            if asked in group:
                return [asked, *(place for place in group if place != asked)]
    raise BadConfiguration(f"--bucket-axis {word}: expected a dynamic axis, {_listed(groups)} (the batch is axis 0)")


def _axis(signature: Signature, groups: Sequence[Sequence[InputAxis]]) -> LengthAxis:
    first = groups[0][0]
    added = [place for group in groups for place in group if place not in groups[0]]
    if others := [_named(place) for place in added if place.number != first.number]:
        raise BadConfiguration(
            f"--bucket-axis: {_named(first)} and {', '.join(others)} cannot be padded as one: the numbers differ"
        )
    pads = {spec.name: blank(spec) for spec in signature.inputs}
    wanted = WantedAxis(
        first.input, first.number, (), pads[first.input], {place.input: pads[place.input] for place in added}
    )
    spots = tuple(axes_of(signature, [wanted])[0].inputs)
    if len({spot.tensor for spot in spots}) < len(spots):
        raise BadConfiguration(f"an input would be padded along two axes at once as {_named(first)}: advice is for one")
    return LengthAxis(wanted, spots)


def _listed(groups: Sequence[Sequence[InputAxis]]) -> str:
    return " or ".join(_named(group[0]) for group in groups)


def _named(place: InputAxis) -> str:
    return f"{place.input}:{place.number}"
