"""All inputs of a mapping: numbers of one datatype are made at once, because a table may have hundreds of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from worker.codecs.records.elements import Element, Faults
from worker.codecs.records.inputs import Counts, Fields, Input, Made
from worker.codecs.records.projection import Column


class AllInputs:
    """The inputs of a model, in the signature's order."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._inputs = inputs
        self._widths = [len(each.wishes) for each in inputs]
        alike: dict[str, list[tuple[int, Fields, Element]]] = {}
        for at, each in enumerate(inputs):
            if isinstance(each, Fields) and (element := each.plain) is not None:
                alike.setdefault(each.spec.datatype, []).append((at, each, element))
        self._alike = [some for some in alike.values() if len(some) > 1]

    def make(self, rest: Iterator[Column], counts: Counts, count: int, faults: Faults) -> list[Made]:
        """Each input of `count` records, as `Input.make` does. `rest` has a column for each wish."""
        columns = [[next(rest) for _ in range(width)] for width in self._widths]
        made = self._together(columns) if counts is None else {}
        return [made.get(at) or each.make(columns[at], counts, count, faults) for at, each in enumerate(self._inputs)]

    def _together(self, columns: Sequence[Sequence[Column]]) -> dict[int, Made]:
        """The inputs that are made at once, by their index; none if a value is wrong, so that its fault is found."""
        made: dict[int, Made] = {}
        for alike in self._alike:
            whole = alike[0][2].together([element.filled(columns[at][0]) for at, _, element in alike])
            if whole is None:
                return {}
            made.update((at, each.made_of(rows)) for (at, each, _), rows in zip(alike, whole, strict=True))
        return made
