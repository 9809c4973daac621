"""Which axis of a model's inputs varies in length from request to request, and how requests may be padded along it.

Reads the signature alone. Axes that the model's file gives one name are one; the command line may put others to them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from worker.core.failures import BadConfiguration
from worker.core.signature import Signature


class InputAxis(NamedTuple):
    """One axis of one input, the batch being axis 0."""

    input: str
    axis: int

    def __str__(self) -> str:
        return f"{self.input}:{self.axis}"


@dataclass(frozen=True, slots=True)
class Axis:
    """What is padded as one. `places[0]` gives it its name; `added` are those that the model's file does not put to it.

    `at` is where a request's `shapes` hold its length: which input, and which of its dimensions.
    """

    places: tuple[InputAxis, ...]
    added: tuple[InputAxis, ...]
    at: tuple[int, int]

    def setting(self, boundaries: Sequence[int]) -> dict[str, object]:
        """The value of WORKER_BATCHING__BUCKETS that pads this axis to these boundaries, with zeros."""
        first = self.places[0]
        shared = {place.input: 0 for place in self.added}
        bucket: dict[str, object] = {"axis": first.axis, "boundaries": list(boundaries), "pad": 0}
        return {first.input: bucket | ({"shared_by": shared} if shared else {})}

    def __str__(self) -> str:
        return str(self.places[0])


def axis_of(signature: Signature, asked: str | None) -> Axis:
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
        return _axis(signature, [groups[0]])
    return _axis(signature, [_group_of(word, groups) for word in asked.split(",")])


def _groups(signature: Signature) -> list[list[InputAxis]]:
    groups: dict[object, list[InputAxis]] = {}
    for spec in signature.inputs:
        symbols = spec.symbols or (None,) * len(spec.dims)
        for at, (dim, symbol) in enumerate(zip(spec.dims, symbols, strict=True), 1):
            if dim is None:
                place = InputAxis(spec.name, at)
                groups.setdefault(symbol or place, []).append(place)
    return list(groups.values())


def _group_of(word: str, groups: Sequence[Sequence[InputAxis]]) -> list[InputAxis]:
    """The group with the axis asked for at its head."""
    if found := re.fullmatch(r"(.+):(\d+)", word.strip()):
        asked = InputAxis(found[1], int(found[2]))
        for group in groups:
            if asked in group:
                return [asked, *(place for place in group if place != asked)]
    raise BadConfiguration(f"--bucket-axis {word}: expected a dynamic axis, {_listed(groups)} (the batch is axis 0)")


def _axis(signature: Signature, groups: Sequence[Sequence[InputAxis]]) -> Axis:
    places = tuple(dict.fromkeys(place for group in groups for place in group))
    inputs = [place.input for place in places]
    if twice := sorted({name for name in inputs if inputs.count(name) > 1}):
        raise BadConfiguration(f"input {', '.join(twice)} would be padded along two axes at once: advice is for one")
    first = places[0]
    at = [spec.name for spec in signature.inputs].index(first.input), first.axis - 1
    return Axis(places, tuple(place for place in places if place not in groups[0]), at)


def _listed(groups: Sequence[Sequence[InputAxis]]) -> str:
    return " or ".join(str(group[0]) for group in groups)
