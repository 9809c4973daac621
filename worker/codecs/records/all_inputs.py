"""All inputs of a mapping: those of one datatype are made at once, because a table may have hundreds of columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from worker.codecs.records.elements import Element, Faults
from worker.codecs.records.inputs import Counts, Dims, Fields, Input
from worker.codecs.records.projection import Column
from worker.core.block import Block
from worker.core.records import Tensor


class AllMade(NamedTuple):
    """All inputs of n records: a column of tensors for each, and its dimensions as `Made.dims` has them."""

    tensors: Sequence[Sequence[Tensor]]
    dims: Sequence[Dims | Sequence[Dims]]


class _Alike(NamedTuple):
    """Inputs of one element that are made at once: their indexes, and those of their columns."""

    element: Element
    inputs: Sequence[int]
    columns: Sequence[int]
    filled: Sequence[tuple[int, Element]]  # the place among these of each that has a default


class AllInputs:
    """The inputs of a model, in the signature's order."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._spans = list(pairwise(accumulate([len(each.wishes) for each in inputs], initial=0)))
        by_datatype: dict[str, list[tuple[int, Element]]] = {}
        for at, each in enumerate(inputs):
            if isinstance(each, Fields) and (element := each.plain) is not None:
                by_datatype.setdefault(each.spec.datatype, []).append((at, element))
        self._alike = [self._together(some) for some in by_datatype.values() if len(some) > 1]
        at_once = {at for alike in self._alike for at in alike.inputs}
        self._inputs = list(enumerate(inputs))
        self._others = [(at, each) for at, each in self._inputs if at not in at_once]
        self._dims = [each.dims if isinstance(each, Fields) else () for each in inputs]

    def _together(self, some: Sequence[tuple[int, Element]]) -> _Alike:
        indexes = [at for at, _ in some]
        filled = [(place, element) for place, (_, element) in enumerate(some) if element.fill is not None]
        return _Alike(some[0][1], indexes, [self._spans[at][0] for at in indexes], filled)

    def make(self, columns: Sequence[Column], counts: Counts, count: int, faults: Faults) -> AllMade:
        """Each input of `count` records, as `Input.make` does. `columns` has one for each wish."""
        tensors: list[Sequence[Tensor]] = [()] * len(self._inputs)
        dims: list[Dims | Sequence[Dims]] = [*self._dims]
        is_at_once = counts is None and self._make_alike(columns, tensors)
        for at, each in self._others if is_at_once else self._inputs:
            start, stop = self._spans[at]
            tensors[at], dims[at] = each.make(columns[start:stop], counts, count, faults)
        return AllMade(tensors, dims)

    def _make_alike(self, columns: Sequence[Column], tensors: list[Sequence[Tensor]]) -> bool:
        """Put the inputs that are made at once among the tensors. False if a value is wrong, and its fault unknown."""
        for element, inputs, places, filled in self._alike:
            own = [columns[at] for at in places]
            for place, each in filled:
                own[place] = each.filled(own[place])  # type: ignore[call-overload]  # a sequence will do
            whole = element.together(own)
            if whole is None:
                return False
            for at, rows in zip(inputs, whole, strict=True):
                tensors[at] = Block(rows)
        return True
