"""Builders of chunks and of the values around them, with defaults: a test shows only what matters to it.

Nothing here needs more than the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

import numpy as np

from worker.core.chunk import Batch, Chunk, Shapes
from worker.core.failures import Code
from worker.core.ordering.ledger import OffsetLedger, Place, Stretch
from worker.core.records import (
    ClosedBy,
    Fields,
    Ids,
    ModelKey,
    Partition,
    Record,
    Rejection,
    ReplyForm,
    Tensor,
    Timeout,
)
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.core.tensors.stacking import Stacker

Each = TypeVar("Each")

P0 = Partition("requests", 0)
P1 = Partition("requests", 1)
Q0 = Partition("more-requests", 0)
MODEL = ModelKey("m", "1")
RAW = ReplyForm("raw")
POLL = 512  # records of one poll, at most


def floats(*values: float) -> bytes:
    return np.asarray(values, "<f4").tobytes()


def record(
    offset: int = 0,
    *values: float,
    partition: Partition = P0,
    key: bytes | None = b"k",
    value: bytes | None = None,
    at: float | None = None,
    timeout: float | None = None,
    schema: int | None = None,
) -> Record:
    """A record with rows of one float: its own offset unless values are given.

    It was published `at` and is to be answered within `timeout`, both in seconds. It names its `schema` in a header.
    """
    headers = [] if timeout is None else [("timeout-ms", b"%d" % round(timeout * 1000))]
    headers += [] if schema is None else [("schema", b"%d" % schema)]
    value = floats(*(values or (offset,))) if value is None else value
    return Record(partition, offset, key, value, tuple(headers), None if at is None else round(at * 1000))


def chunk(
    *offsets: int,
    rows: int | list[int] = 1,
    shapes: Shapes | list[Shapes] = ((1,),),
    tensors: Sequence[Sequence[Tensor]] | None = None,
    sizes: int | list[int] | None = None,
    timeouts: list[Timeout | None] | None = None,
    deadlines: list[float] | None = None,
    ids: list[Ids] | None = None,
    records: Sequence[Record] | None = None,
    partition: Partition = P0,
    model: ModelKey = MODEL,
) -> Chunk:
    """A chunk of these offsets, or of record 0. A list has a value for each record, any other value is for all.

    Each element of a record's `tensors` is its offset, unless columns are given.
    """
    if records is None:
        records = [record(offset, partition=partition) for offset in offsets or (0,)]
    count = len(records)
    rows, shapes = _each(rows, count), _each(shapes, count)
    tensors = _columns(records, rows, shapes) if tensors is None else tensors
    sizes = [4 * of_one for of_one in rows] if sizes is None else _each(sizes, count)
    return Chunk(model, RAW, records, rows, shapes, tensors, sizes, range(count), ids, timeouts, None, None, deadlines)


def _columns(records: Sequence[Record], rows: Sequence[int], shapes: Sequence[Shapes]) -> list[list[Tensor]]:
    columns: list[list[Tensor]] = [[] for _ in shapes[0]]
    for record, count, own in zip(records, rows, shapes, strict=True):
        for column, dims in zip(columns, own, strict=True):
            column.append(floats(*[record.offset] * (count * prod(dims))))
    return columns


def _each(value: Each | list[Each], count: int) -> list[Each]:
    return value if isinstance(value, list) else [value] * count


def one(offset: int = 0, *values: float, partition: Partition = P0) -> Chunk:
    """A chunk of one record with a row for each of these values."""
    return chunk(offset, rows=len(values), tensors=[[floats(*values)]], partition=partition)


def singles(chunk: Chunk) -> list[Chunk]:
    """Each record of a chunk as a chunk of its own."""
    return [chunk.take(at, at + 1) for at in range(len(chunk))]


def offsets(chunks: Sequence[Chunk]) -> list[int]:
    return [one.offset for chunk in chunks for one in chunk.records]


def rejection(offset: int = 0, partition: Partition = P0) -> Rejection:
    return Rejection(record(offset, partition=partition), Code.INVALID_ARGUMENT, "no", RAW)


def spec(name: str = "x", datatype: str = "FP32", dims: tuple[int | None, ...] = (1,)) -> TensorSpec:
    return TensorSpec(name, datatype, dims)


def signature(*inputs: TensorSpec, outputs: Sequence[TensorSpec] = (), max_rows: int = 65536) -> Signature:
    """A model `m` of version 1; without arguments it takes x and gives y, FP32 rows of one element."""
    return Signature("m", "1", inputs or (spec(),), tuple(outputs) or (spec("y"),), max_rows)


def stacker(*inputs: TensorSpec, outputs: Sequence[TensorSpec] = ()) -> Stacker:
    return Stacker(signature(*inputs, outputs=outputs))


def batch(*chunks: Chunk, by: Stacker | None = None) -> Batch:
    """A stacked batch of these chunks, or of records 0 and 1 when none are given."""
    stacked, refused = (by or stacker()).stack(chunks or (chunk(0, 1),), ClosedBy.SIZE)
    assert stacked is not None
    assert not refused
    return stacked


def answer_of(place: Place) -> Fields:
    """An answer of eight bytes to the record at this place."""
    source = f"{place.partition}/{place.offset}".encode()
    return "responses", b"k", b"answered", [("source", source)], place.partition.number, None


def places_of(stretches: Sequence[Stretch]) -> list[Place]:
    """The places of these stretches, one by one."""
    return [Place(places, at) for places, start, stop in stretches for at in range(start, stop)]


def answered(ledger: OffsetLedger, *places: Place) -> list[Place]:
    """Answer records, all at once. Returns the places whose answers may leave."""
    return places_of(ledger.answer([(place.places, [place.at], [answer_of(place)]) for place in places]))


def acknowledged(ledger: OffsetLedger, *places: Place) -> None:
    """Settle places whose answers have left."""
    ledger.settle([Stretch(place.places, place.at, place.at + 1) for place in places])


def settled(ledger: OffsetLedger, *places: Place) -> None:
    """Answer records, and settle them whether their answers may leave or not."""
    answered(ledger, *places)
    acknowledged(ledger, *places)


def taken(
    ledger: OffsetLedger, *records: Record, rows: int = 2, size: int = 10, now: float | None = None
) -> list[Place]:
    """Take records together, of two rows and ten bytes each, at the instant of the first one's offset."""
    at = float(records[0].offset) if now is None else now
    places = ledger.track(records, [rows] * len(records), [size] * len(records), at)
    return [Place(places, index) for index in range(len(records))]


def tracked(ledger: OffsetLedger, chunk: Chunk, now: float = 0.0) -> Chunk:
    """The chunk with its places."""
    return replace(chunk, places=ledger.track(chunk.records, list(chunk.rows), list(chunk.sizes), now))
