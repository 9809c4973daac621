"""The inputs of a model, each made of columns of fields: the bytes of the elements of each record.

| a row of               | takes | made by |
|---|---|---|
| any fixed dimensions   | a constant | `Constants` |
| one element            | a field | `Fields` |
| k elements             | a vector of k fields, or a field that is an array of k | `Fields`, `Nested` |
| any number of elements | `items[*].price`, or a field that is an array | `Items`, `Nested` |
| more dimensions        | a vector of `items[*].a` and `items[*].b`, or arrays in an array | `Items`, `Nested` |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise, repeat
from math import prod
from typing import Any, NamedTuple

import numpy as np

from worker.codecs.records.elements import Element, Faults
from worker.codecs.records.paths import EACH, Path
from worker.codecs.records.projection import REQUIRED, Column, Wish
from worker.codecs.records.sources import Constant, Entry, Source, Vector
from worker.core.block import Block
from worker.core.failures import BadConfiguration
from worker.core.records import Array, Tensor
from worker.core.tensors.specs import TensorSpec

Dims = tuple[int, ...]
# How many rows each record has; None: one each.
Counts = Sequence[int] | None
# The most elements of one input in all rows of a record, where these repeat a value: 1 MiB of FP64. A record of 100 KB
# may have 20,000 rows, and outside of them an array of 2,000 numbers: 160 MB, and 2.5 s (2026-11).
MOST_REPEATED = 1 << 17


class Made(NamedTuple):
    """One input of n records: the tensor of each, and its dimensions after the batch axis; one tuple: all are equal."""

    tensors: Sequence[Tensor]
    dims: Dims | Sequence[Dims]


class Input(ABC):
    """One input of the model. It knows the fields that it takes."""

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec

    @property
    @abstractmethod
    def wishes(self) -> Sequence[Wish]:
        """The fields that it takes."""

    @abstractmethod
    def make(self, columns: Sequence[Column], counts: Counts, count: int, faults: Faults) -> Made:
        """The tensors of `count` records. `columns` has a column for each wish.

        A record that is wrong gets an entry in `faults`, by its index, and its tensor is any then.
        """


def input_of(spec: TensorSpec, entry: Entry, rows: Path | None, *, takes_nan: bool) -> Input:
    """The input that an entry describes. `rows`: the array whose elements are the rows of a record.

    Raises `BadConfiguration` for an entry that cannot give such rows.
    """
    where = f"[records.inputs] {spec.name}"
    if isinstance(entry, Constant):
        return Constants(spec, entry, where)
    if isinstance(entry, Vector):
        return _of_vector(spec, entry.sources, rows, where, takes_nan=takes_nan)
    element = Element(where, spec, entry, takes_nan=takes_nan)
    if _array_within_row(entry, rows) is not None:
        return Items(spec, [element], None, where)
    if spec.dims in ((), (1,)):
        return Fields(spec, [element], None)
    if entry.path.is_of_record:
        raise BadConfiguration(f"{where}: {entry.path} is one element, and the model takes {spec}")
    return Nested(spec, element)


def _of_vector(spec: TensorSpec, sources: Sequence[Source], rows: Path | None, where: str, *, takes_nan: bool) -> Input:
    width = len(sources)
    if not spec.dims or spec.dims[-1] not in (None, width):
        raise BadConfiguration(f"{where}: {width} fields are given, and the model takes {spec}")
    through = {_array_within_row(source, rows) for source in sources}
    if len(through) > 1:
        raise BadConfiguration(f"{where}: its fields must all come from one array, or none from any")
    elements = [Element(where, spec, source, takes_nan=takes_nan) for source in sources]
    if None not in through:
        return Items(spec, elements, width, where)
    if len(spec.dims) > 1:
        raise BadConfiguration(f"{where}: {width} fields are one dimension, and the model takes {spec}")
    return Fields(spec, elements, width)


def _array_within_row(source: Source, rows: Path | None) -> tuple[str, ...] | None:
    """The array within a row that this path goes through; None if there is none."""
    steps = source.path.steps
    if EACH not in steps or (rows is not None and source.path.below(rows)):
        return None
    return steps[: steps.index(EACH)]


class Constants(Input):
    """The same value for all elements."""

    def __init__(self, spec: TensorSpec, entry: Constant, where: str) -> None:
        super().__init__(spec)
        if not spec.can_be(entry.value):
            raise BadConfiguration(f"{where}: {entry.value!r} is not {spec.values}")
        if None in spec.dims:
            raise BadConfiguration(f"{where}: a constant fills fixed dimensions, and the model takes {spec}")
        self._dims = tuple([dim or 1 for dim in spec.dims])
        size = prod(self._dims)
        numbers = None if spec.is_text else np.full(size, entry.value, spec.dtype).tobytes()
        self._row: Any = [entry.value] * size if numbers is None else numbers

    @property
    def wishes(self) -> Sequence[Wish]:
        return ()

    def make(self, columns: Sequence[Column], counts: Counts, count: int, faults: Faults) -> Made:  # noqa: ARG002  # nothing can be wrong
        tensors: Sequence[Tensor] = [self._row] * count
        if counts is not None:
            tensors = _repeated(tensors, [prod(self._dims)] * count, counts, self.spec.name, faults)
        return Made(tensors, self._dims)


class Fields(Input):
    """Fields of one element each, `width` of them side by side; None: a single one."""

    def __init__(self, spec: TensorSpec, elements: Sequence[Element], width: int | None) -> None:
        super().__init__(spec)
        self._elements = elements
        dims = spec.dims if width is None else (width,)
        self.dims = tuple([dim or 1 for dim in dims])

    @property
    def wishes(self) -> Sequence[Wish]:
        return [element.wish for element in self._elements]

    @property
    def plain(self) -> Element | None:
        """Its element, if that is one value of the record as it is; else None."""
        return self._elements[0] if len(self._elements) == 1 and self._elements[0].is_plain else None

    def make(self, columns: Sequence[Column], counts: Counts, count: int, faults: Faults) -> Made:
        owners: Array | None = None
        if counts is not None:
            owners = np.repeat(np.arange(count), counts)
            columns = [
                _by_row(element, column, counts) for element, column in zip(self._elements, columns, strict=True)
            ]
        whole = _side_by_side(self._elements, columns, owners, faults)
        if counts is None:
            return Made(Block(whole), self.dims)
        return Made(_cut(self.spec, whole, counts, len(columns)), self.dims)


class Items(Input):
    """Fields of the elements of an array within the record: one for each element, or `width` of them side by side."""

    def __init__(self, spec: TensorSpec, elements: Sequence[Element], width: int | None, where: str) -> None:
        super().__init__(spec)
        self._elements = elements
        self._width: Dims = () if width is None else (width,)
        if len(spec.dims) != 1 + len(self._width):
            raise BadConfiguration(f"{where}: an array of any length is one dimension, and the model takes {spec}")
        self._length = spec.dims[0]
        self._fills = self._length is None and all(map(_fills, elements))

    @property
    def wishes(self) -> Sequence[Wish]:
        return [element.wish._replace(length=self._length, fills=self._fills) for element in self._elements]

    def make(self, columns: Sequence[Column], counts: Counts, count: int, faults: Faults) -> Made:
        if self._fills:
            columns = list(map(_filled, columns))
        lengths = list(map(len, columns[0]))
        for at, length in enumerate(lengths):
            if not length or length != (self._length or length):
                path, many = self._elements[0].source.path, self._length or "one or more"
                faults.setdefault(at, f"{path}: expected {many} elements, got {length}")
        owners = np.repeat(np.arange(count), lengths)
        flat = [list(chain.from_iterable(column)) for column in columns]
        whole = _side_by_side(self._elements, flat, owners, faults)
        tensors = _cut(self.spec, whole, lengths, len(columns))
        if counts is not None:  # each row of the record has them all
            sizes = [length * len(columns) for length in lengths]
            tensors = _repeated(tensors, sizes, counts, self._elements[0].source.path, faults)
        return Made(tensors, [(length, *self._width) for length in lengths])


class Nested(Input):
    """A field that is an array, of as many dimensions as a row of the input has."""

    def __init__(self, spec: TensorSpec, element: Element) -> None:
        super().__init__(spec)
        self._element = element
        self._blank = tuple([dim or 1 for dim in spec.dims])
        self._fills = spec.dims == (None,) and _fills(element)

    @property
    def wishes(self) -> Sequence[Wish]:
        wish = self._element.wish
        wanted = wish.type | None if self._element.may_miss else wish.type
        for _ in self.spec.dims:
            wanted = list[wanted]  # type: ignore[valid-type]  # made at run time
        return [wish._replace(type=wanted, default=None if self._fills else REQUIRED, dims=self.spec.dims)]

    def make(self, columns: Sequence[Column], counts: Counts, count: int, faults: Faults) -> Made:
        path = self._element.source.path
        if counts is not None and not path.has_each:
            once = self.make(columns, None, count, faults)
            elements = [prod(shape) for shape in once.dims]  # type: ignore[arg-type]  # a tuple for each
            return Made(_repeated(once.tensors, elements, counts, path, faults), once.dims)
        rows = columns[0] if counts is None else _by_row(self._element, columns[0], counts)
        if self._fills:
            rows = _filled(rows)
        owners = np.repeat(np.arange(count), counts or 1).tolist()
        unfolded = [_unfolded(value, self.spec.dims) for value in rows]
        for owner, found in zip(owners, unfolded, strict=True):
            if found is None:
                faults.setdefault(owner, f"{path}: expected an array of shape {_shown(self.spec.dims)}")
        nothing: tuple[Dims, list[Any]] = self._blank, []  # as a fault costs no memory
        fit = [found or nothing for found in unfolded]
        sizes = [len(flat) for _, flat in fit]
        flat = list(chain.from_iterable([flat for _, flat in fit]))
        whole = _side_by_side([self._element], [flat], np.repeat(owners, sizes), faults)
        shapes = [shape for shape, _ in fit]
        if counts is None:
            return Made(_cut(self.spec, whole, sizes, 1), shapes)
        bounds = list(pairwise(accumulate(counts, initial=0)))
        for at, (start, stop) in enumerate(bounds):
            if start < stop and shapes[start:stop].count(shapes[start]) < stop - start:
                faults.setdefault(at, f"{path}: expected arrays of one shape in all rows")
        of_records = [sum(sizes[start:stop]) for start, stop in bounds]
        of_rows = [shapes[start] if start < stop else self._blank for start, stop in bounds]
        return Made(_cut(self.spec, whole, of_records, 1), of_rows)


def _fills(element: Element) -> bool:
    """True if the entry has a default. One of the model is as long as the other inputs, and so fills nothing here."""
    return element.fill is not None and element.spec.default is None


def _filled(column: Column) -> Column:
    """These arrays of any length, with one missing element in the place of none."""
    return [array or [None] for array in column]


def _repeated(
    tensors: Sequence[Tensor], sizes: Sequence[int], counts: Sequence[int], what: object, faults: Faults
) -> Sequence[Tensor]:
    """The tensors of records, each for all rows of its record. They have so many elements, of the field `what`."""
    times = list(counts)
    for at, (size, rows) in enumerate(zip(sizes, counts, strict=True)):
        if rows > 1 and size * rows > MOST_REPEATED:
            faults.setdefault(at, f"{what}: expected at most {MOST_REPEATED:,} elements in all rows of the record")
            times[at] = 1
    return [tensor * rows for tensor, rows in zip(tensors, times, strict=True)]  # type: ignore[misc, operator]  # bytes or a list


def _by_row(element: Element, column: Column, counts: Sequence[int]) -> Column:
    """The values for all rows: a field of the rows' array has a list of them, and another is repeated."""
    if EACH in element.source.path.steps:
        return list(chain.from_iterable(column))
    return list(chain.from_iterable(map(repeat, column, counts)))


def _side_by_side(
    elements: Sequence[Element], columns: Sequence[Column], owners: Array | None, faults: Faults
) -> Array:
    """The elements of these columns, of shape (n,) or (n, columns). A wrong one is its owner's fault."""
    arrays: list[Array] = []
    for element, column in zip(elements, columns, strict=True):
        wrong: Faults = {}
        arrays.append(element.array(column, wrong))
        for at, expected in wrong.items():
            owner = at if owners is None else int(owners[at])
            faults.setdefault(owner, f"{element.source.path}: expected {expected}")
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)


def _cut(spec: TensorSpec, whole: Array, counts: Sequence[int], width: int) -> Sequence[Tensor]:
    """The tensor of each record, of `width` elements for each that it counts."""
    if spec.is_text:
        held: Any = whole.reshape(-1).tolist()
        size = width
    else:
        held, size = whole.tobytes(), width * whole.itemsize
    return [held[start:stop] for start, stop in pairwise(accumulate([n * size for n in counts], initial=0))]


def _unfolded(value: Any, dims: Sequence[int | None]) -> tuple[Dims, list[Any]] | None:
    """The shape of nested lists, and their elements; None if they are uneven, empty, or not of these dimensions."""
    shape = [len(value)]
    for _ in dims[1:]:
        if not value:
            return None
        shape.append(len(value[0]))
        if any(len(each) != shape[-1] for each in value):
            return None
        value = list(chain.from_iterable(value))
    fits = all(got and want in (None, got) for want, got in zip(dims, shape, strict=True))
    return (tuple(shape), value) if fits else None


def _shown(dims: Sequence[int | None]) -> str:
    return f"[{', '.join(['any' if dim is None else str(dim) for dim in dims])}]"
