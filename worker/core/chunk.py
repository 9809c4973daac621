"""The values that stand for many records: a `Chunk` is the unit of work from poll to answer.

    n records ──read──▶ Chunk ──take──▶ a slice for each batch ──stack──▶ feeds ──run──▶ outputs ──write──▶ n answers
        └─ wrong ones, by index ──▶ Rejection, one each

Whatever all records say alike is said once: the model, the form of the answer, the use of the state. What differs is a
column, a list with one entry for each record. So a layer costs a few calls for a chunk, and a chunk of one record is
as right as one of 200. A record that fails is cut out by its index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from worker.core.block import Block
from worker.core.failures import Code, RunFailure
from worker.core.ordering.ledger import Place, Places
from worker.core.records import (
    NO_IDS,
    Array,
    BatchKind,
    ClosedBy,
    Ids,
    ModelKey,
    Partition,
    Record,
    Rejection,
    ReplyForm,
    StateUse,
    Tensor,
    Timeout,
)
from worker.core.schemas import SchemaName

# The non-batch dimensions of each input.
Shapes = tuple[tuple[int, ...], ...]


@dataclass(slots=True, eq=False)
class Chunk:
    """n ≥ 1 records of one partition, in the order of their offsets. Nobody writes to a column once it is built.

    `tensors` has a column for each input of the model, in the signature's order; a tensor holds all rows of its record.
    Equal `shapes` are one object where possible. `sizes` are the bytes that each record holds in memory. `at` is the
    index of each among the records that were read together, and in `places`. `ids` None: no record has any; `timeouts`
    and `deadlines` None: any answer is wanted, however late. A deadline is an instant of the loop's clock, or infinity.
    `kept` is what the answers repeat of records, `answer_keys` their keys; None: nothing, and the records' own keys.
    """

    model: ModelKey
    form: ReplyForm
    records: Sequence[Record]
    rows: Sequence[int]
    shapes: Sequence[Shapes]
    tensors: Sequence[Sequence[Tensor]]
    sizes: Sequence[int]
    at: Sequence[int]
    ids: Sequence[Ids] | None = None
    timeouts: Sequence[Timeout | None] | None = None
    state: StateUse | None = None
    places: Places | None = None
    deadlines: Sequence[float] | None = None
    kept: Sequence[Any] | None = None  # of records: what an answer repeats of its record, as its writer takes it
    answer_keys: Sequence[bytes] | None = None  # None: an answer has its record's key
    reassembly: Pieces | None = None  # set on the pieces of a record with more rows than a batch
    _keys: Sequence[bytes] | None = None

    def __len__(self) -> int:
        return len(self.records)

    @property
    def partition(self) -> Partition:
        return self.records[0].partition

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys of its records; empty for a record without one. Made when asked for first, and kept."""
        if self._keys is None:
            self._keys = [record[2] or b"" for record in self.records]
        return self._keys

    def place(self, at: int) -> Place:
        """The place of the record at this index."""
        assert self.places is not None
        return Place(self.places, self.at[at])

    def ids_of(self, at: int) -> Ids:
        """The ids of the record at this index."""
        return NO_IDS if self.ids is None else self.ids[at]

    def take(self, start: int, stop: int) -> Chunk:
        """The records `start` to `stop`; the chunk itself if these are all."""
        if start == 0 and stop == len(self.records):
            return self
        return self._with(itemgetter(slice(start, stop)))

    def pick(self, indexes: Sequence[int]) -> Chunk:
        """The records at these indexes, which ascend; there is at least one."""
        first, count = indexes[0], len(indexes)
        if indexes[-1] - first == count - 1:
            return self.take(first, first + count)
        return self._with(itemgetter(*indexes))

    def _with(self, of: Callable[[Sequence[Any]], Sequence[Any]]) -> Chunk:
        """The chunk whose columns are these parts of ours."""
        return Chunk(
            self.model,
            self.form,
            of(self.records),
            of(self.rows),
            of(self.shapes),
            list(map(of, self.tensors)),
            of(self.sizes),
            of(self.at),
            self.ids and of(self.ids),
            self.timeouts and of(self.timeouts),
            self.state,
            self.places,
            self.deadlines and of(self.deadlines),
            self.kept and of(self.kept),
            self.answer_keys and of(self.answer_keys),
            self.reassembly,
            self._keys and of(self._keys),
        )


def columns_of(chunks: Sequence[Chunk], inputs: Sequence[int] | None = None) -> Sequence[Sequence[Tensor]]:
    """The tensors of all these records, a column for each input, or for these inputs."""
    of = [chunk.tensors if inputs is None else [chunk.tensors[at] for at in inputs] for chunk in chunks]
    return of[0] if len(chunks) == 1 else [_joined(columns) for columns in zip(*of, strict=True)]


def _joined(columns: Sequence[Sequence[Tensor]]) -> Sequence[Tensor]:
    blocks = [column.rows for column in columns if isinstance(column, Block)]
    if len(blocks) == len(columns):
        return Block(np.concatenate(blocks))
    return list(chain.from_iterable(columns))


def records_of(chunks: Sequence[Chunk]) -> list[tuple[Chunk, int]]:
    """All these records, each as its chunk and its index there."""
    return [(chunk, at) for chunk in chunks for at in range(len(chunk))]


def without(chunks: Sequence[Chunk], indexes: Collection[int]) -> list[Chunk]:
    """The chunks without these records, by their index in the batch."""
    kept: list[Chunk] = []
    first = 0
    for chunk in chunks:
        own = [at for at in range(len(chunk)) if first + at not in indexes]
        if own:
            kept.append(chunk.pick(own))
        first += len(chunk)
    return kept


class Waiting(NamedTuple):
    """The records from index `at` on are not read: the first of them needs this schema, and it is not here yet."""

    at: int
    schema: SchemaName


class Reading(NamedTuple):
    """Records that were read: chunks of good ones, and rejections by their index.

    `waiting` None: all records are read, which is nearly always so.
    """

    chunks: Sequence[Chunk]
    rejections: Sequence[tuple[int, Rejection]]
    waiting: Waiting | None = None


class Batch(NamedTuple):
    """Records that share one inference, stacked. `feeds` maps input names to arrays of shape (rows, *dims).

    `is_alone`: no other batch may run beside it, because it may end the process that has the model. `gives_way`: it
    takes long, so others go before it.
    """

    chunks: Sequence[Chunk]
    feeds: Mapping[str, Array]
    rows: int
    closed_by: ClosedBy
    states: Mapping[str, Array] = {}  # the states of the rows' keys, by input, as in `feeds`
    is_alone: bool = False
    gives_way: bool = False

    @property
    def all_feeds(self) -> Mapping[str, Array]:
        """All inputs of the model: the records' tensors and the states."""
        return {**self.feeds, **self.states} if self.states else self.feeds

    @property
    def model(self) -> ModelKey:
        """The model that runs the batch: all its records are for one model in one version."""
        return self.chunks[0].model

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The non-batch dimensions of each input as the model gets it, padding included."""
        return tuple([feed.shape[1:] for feed in self.feeds.values()])

    @property
    def kind(self) -> BatchKind:
        return BatchKind(self.model, self.shapes)


class Prediction(NamedTuple):
    """The model's answers to a chunk: the rows of `outputs` from `start` on, in order.

    `outputs` holds one array of shape (rows of the batch, *dims) per model output, in signature order. `states` are the
    next states that the run gave, one array per tensor of a state; predictions of one run share the object.
    """

    chunk: Chunk
    outputs: Sequence[Array]
    start: int = 0
    states: Sequence[Array] | None = None


class Refused(NamedTuple):
    """The record at index `at` of a chunk, and why it gets no result."""

    chunk: Chunk
    at: int
    rejection: Rejection


def refusal(chunk: Chunk, at: int, code: Code, message: str) -> Refused:
    """The refusal of one record of a chunk."""
    return Refused(chunk, at, Rejection(chunk.records[at], code, message, chunk.form, chunk.ids_of(at)))


class Finished(NamedTuple):
    """One finished inference: `outputs` (one array per model output) or the `failure`, and the seconds it took.

    `batch` None: the model's warm-up batch ran again, to find out whether the device still works.
    """

    batch: Batch | None
    outputs: Sequence[Array] | None
    failure: RunFailure | None
    seconds: float


def cut(one: Chunk, rows: int) -> list[Chunk]:
    """Cut a chunk of one record into pieces of at most `rows` rows. `Pieces` joins their outputs. Tensors are views."""
    reassembly = Pieces(one)
    count, size = one.rows[0], one.sizes[0]
    pieces: list[Chunk] = []
    for start in range(0, count, rows):
        stop = min(start + rows, count)
        piece = replace(
            one,
            rows=[stop - start],
            tensors=[[_rows_of(tensor, count, start, stop)] for (tensor,) in one.tensors],
            sizes=[math.ceil(size * (stop - start) / count)],
            reassembly=reassembly,
        )
        pieces.append(piece)
        reassembly.expect(piece)
    return pieces


# The shape of an output may depend on the data, so pieces of one request may differ.
PIECES_DIFFER = (
    "it has more rows than a batch, and the outputs of its parts differ in their shapes; send fewer rows at once"
)


class Pieces:
    """Collects the outcomes of a cut record's pieces, which finish in any order. One rejection is enough.

    It knows its pieces by identity only. They refer to it, and a reference cycle would keep a large record in memory
    until the garbage collector runs.
    """

    __slots__ = ("_missing", "_parts", "carried", "is_over", "whole")

    def __init__(self, whole: Chunk) -> None:
        self.whole = whole
        self._parts: dict[int, Sequence[Array]] = {}  # in the order of the rows
        self._missing = 0
        self.is_over = False
        self.carried: Sequence[Array] | None = None

    def expect(self, piece: Chunk) -> None:
        """Expect the piece with the next rows."""
        self._parts[id(piece)] = ()
        self._missing += 1

    def collect(self, piece: Chunk, outcome: Prediction | Rejection) -> Prediction | Rejection | None:
        """The outcome of the whole record, once, when it is known; None before and after."""
        if self.is_over:
            return None
        if isinstance(outcome, Rejection):
            self._finish()
            return outcome
        _, outputs, start, states = outcome
        stop = start + piece.rows[0]
        self._parts[id(piece)] = [output[start:stop] for output in outputs]
        if states is not None:
            self.carried = [array[stop - 1 : stop] for array in states]
        self._missing -= 1
        if self._missing:
            return None
        parts = self._finish()
        try:
            joined = [np.concatenate(rows) for rows in zip(*parts, strict=True)]
        except ValueError:
            return refusal(self.whole, 0, Code.INTERNAL, f"the model failed on this record: {PIECES_DIFFER}").rejection
        return Prediction(self.whole, joined, 0, self.carried)

    def _finish(self) -> list[Sequence[Array]]:
        parts = list(self._parts.values())
        self._parts.clear()
        self.is_over = True
        return parts


def _rows_of(tensor: Tensor, rows: int, start: int, stop: int) -> Tensor:
    held = tensor if isinstance(tensor, list) else memoryview(tensor)
    per_row = len(held) // rows
    return held[start * per_row : stop * per_row]
