"""Joins the rows of records into one array, splits the outputs of a batch, and cuts a failed batch in halves.

Numeric tensors are joined as bytes and viewed, never parsed one by one. The exact length of each is checked before,
because a join-and-reshape of an empty and a double-length record gives two requests each other's answers. A check may
cover the whole stacked array only if each row can fail for itself alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np

from worker.core.chunk import Batch, Chunk, Prediction, Refused, cut, records_of, refusal, without
from worker.core.failures import Code, RowsLost, RunFailure
from worker.core.records import Array, ClosedBy
from worker.core.tensors.room import Rooms, own_room
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

# For more than MANY tensors of fewer than SMALL elements in the mean, to check one copy of all is faster than to check
# each: 500 tensors of 32 numbers take 0.3 ms, and 1.7 ms one by one (2026-11).
MANY, SMALL = 16, 1024
FEW = 10_000  # elements: 1.2 µs where `all` takes 2.4; from 50,000 on a search in bytes takes longer (2026-11)
# The operator's own message follows it.
VALUE_NOT_TAKEN = "the model does not take a value of this record"


class Split(NamedTuple):
    """The outcomes of a batch's records, in their order. A chunk with a refused record comes in several parts."""

    predicted: list[Prediction]
    refused: list[Refused]


@dataclass(frozen=True, slots=True)
class Stacker:
    """Stacks batches for one model. `refuse_*`: NaN and infinity are an error in inputs, or in outputs."""

    signature: Signature
    refuse_non_finite_input: bool = True
    refuse_non_finite_output: bool = True
    rooms: Rooms = own_room  # where batches are stacked

    def stack(self, chunks: Sequence[Chunk], closed_by: ClosedBy) -> tuple[Batch | None, list[Refused]]:
        """One batch of these records, which are of one bucket, and refusals of the records that may not run."""
        chunks = [chunk for chunk in chunks if chunk.reassembly is None or not chunk.reassembly.is_over]
        batch = self._join(chunks, closed_by)
        if batch is None or not self.refuse_non_finite_input:
            return batch, []
        non_finite = self._non_finite(chunks, batch.rows, self.signature.inputs, batch.feeds.values())
        if not non_finite:
            return batch, []
        why = {at: f"input {name}: holds NaN or infinity" for at, name in non_finite.items()}
        return self._join(without(chunks, why), closed_by), _refused(chunks, why, Code.INVALID_ARGUMENT)

    def split(self, batch: Batch, outputs: Sequence[Array]) -> Split | RunFailure:
        """The predictions of a batch, and refusals of the records whose own part of an output is not finite.

        A `RunFailure` if an output does not have the batch's rows: then the owner of a row is unknown.
        """
        return self._parted(batch, outputs, {})

    def _parted(self, batch: Batch, outputs: Sequence[Array], spoilt: Mapping[int, str]) -> Split | RunFailure:
        """The batch in parts, as `split` gives them. `spoilt` says why further records (by index) are refused."""
        for spec, output in zip(self.signature.outputs, outputs, strict=True):
            if output.ndim < 1 or output.shape[0] != batch.rows:
                return RunFailure(str(RowsLost(spec.name, batch.rows, output.shape)), loses_rows=True)
        buckets = self.signature.buckets
        if buckets.cuts_outputs and (wrong := buckets.misfit(outputs, batch.shapes)):
            return RunFailure(wrong)
        non_finite: Mapping[int, str] = {}
        if self.refuse_non_finite_output:
            non_finite = self._non_finite(batch.chunks, batch.rows, self.signature.outputs, outputs)
            if non_finite and buckets.cuts_outputs:  # padding belongs to no record
                non_finite = self._non_finite_parts(batch.chunks, outputs)
        if not non_finite and not spoilt:
            return Split(_predictions(batch.chunks, outputs, ()), [])
        why = {at: f"output {name}: the model answered NaN or infinity" for at, name in non_finite.items()}
        why.update(spoilt)
        return Split(_predictions(batch.chunks, outputs, why), _refused(batch.chunks, why, Code.INTERNAL))

    def _non_finite_parts(self, chunks: Sequence[Chunk], outputs: Sequence[Array]) -> Mapping[int, str]:
        """The records (by their index in the batch) whose own parts hold NaN or infinity, without the padding."""
        non_finite: dict[int, str] = {}
        start = 0
        for at, (rows, shapes) in enumerate(chain.from_iterable(zip(c.rows, c.shapes, strict=True) for c in chunks)):
            own = self.signature.buckets.own_parts(outputs, shapes, start, start + rows)
            start += rows
            for spec, output in zip(self.signature.outputs, own, strict=True):
                if spec.is_float and not np.isfinite(output).all():
                    non_finite[at] = spec.name
        return non_finite

    def _join(self, chunks: Sequence[Chunk], closed_by: ClosedBy) -> Batch | None:
        if not chunks:
            return None
        rows, buckets = sum([sum(chunk.rows) for chunk in chunks]), self.signature.buckets
        feeds = buckets.joined(chunks, rows, buckets.padded(chunks[0].shapes[0]), self.rooms)
        return Batch(chunks, feeds, rows, closed_by, self._states_of(chunks))

    def _states_of(self, chunks: Sequence[Chunk]) -> Mapping[str, Array]:  # noqa: ARG002  # a stateful one has some
        """The states that the records' rows run on, by input; none here."""
        return {}

    @staticmethod
    def _non_finite(
        chunks: Sequence[Chunk], rows: int, specs: Sequence[TensorSpec], arrays: Collection[Array]
    ) -> dict[int, str]:
        """The records (by their index in the batch) that hold NaN or infinity, each with the name of the tensor."""
        non_finite: dict[int, str] = {}
        if len(specs) > MANY and _are_small_and_finite(
            [array for spec, array in zip(specs, arrays, strict=True) if spec.is_float]
        ):
            return non_finite
        for spec, array in zip(specs, arrays, strict=True):
            if not spec.is_float or _is_finite(array):
                continue
            finite_rows = np.isfinite(array.reshape(rows, -1)).all(axis=1)
            non_finite |= dict.fromkeys(_owners(chunks)[~finite_rows].tolist(), spec.name)
        return non_finite


def _predictions(chunks: Sequence[Chunk], outputs: Sequence[Array], refused: Collection[int]) -> list[Prediction]:
    """The predictions of all records except these, by their index in the batch: one for each part of a chunk."""
    predicted: list[Prediction] = []
    index = row = 0
    for chunk in chunks:
        if not refused:
            predicted.append(Prediction(chunk, outputs, row))
            row += sum(chunk.rows)
            continue
        rows, start, count = [*accumulate(chunk.rows, initial=row)], 0, len(chunk)
        for at in [*[at for at in range(count) if index + at in refused], count]:
            if at > start:
                predicted.append(Prediction(chunk.take(start, at), outputs, rows[start]))
            start = at + 1
        index, row = index + count, rows[-1]
    return predicted


def _refused(chunks: Sequence[Chunk], why: Mapping[int, str], code: Code) -> list[Refused]:
    """The refusals of these records (by their index in the batch), and why they are refused."""
    records = records_of(chunks)
    return [refusal(*records[index], code, why[index]) for index in sorted(why)]


def halve(batch: Batch) -> list[Batch]:
    """Halve a batch of two rows or more between its records, or a single record between its rows. Arrays are views."""
    chunks = batch.chunks
    count = sum(map(len, chunks))
    if count == 1:
        chunks = cut(chunks[0], -(-batch.rows // 2))
        first, second = chunks[:1], chunks[1:]
    else:
        first, second = without(chunks, range(count // 2, count)), without(chunks, range(count // 2))
    rows = sum(sum(chunk.rows) for chunk in first)
    return [_part(batch, first, slice(rows)), _part(batch, second, slice(rows, None))]


def each_alone(batch: Batch) -> list[Batch]:
    """A batch for each record, to run with no other beside it. Arrays are views."""
    batches: list[Batch] = []
    row = 0
    for chunk in batch.chunks:
        for at, rows in enumerate(chunk.rows):
            one = _part(batch, [chunk.take(at, at + 1)], slice(row, row + rows))
            batches.append(one._replace(is_alone=True))
            row += rows
    return batches


class Parted(NamedTuple):
    """A batch of which some rows have no result: the records with results, the ones to run again, and refusals."""

    done: Batch | None
    outputs: Sequence[Array]  # of `done`
    rest: Batch | None
    refused: list[Refused]


def parted(batch: Batch, failure: RunFailure) -> Parted:
    """The batch in parts. A record with several rows is refused for its first fault, and runs again for a row left.

    Rows that the batch does not have are ignored, and so are outputs that have not as many rows as they should. Arrays
    are copies.
    """
    owner, rows = _owners(batch.chunks), range(batch.rows)
    why = {int(owner[row]): failure.faults[row] for row in sorted(failure.faults.keys() & rows, reverse=True)}
    records = records_of(batch.chunks)
    refused = [refusal(*records[at], why[at].code, why[at].message) for at in sorted(why)]
    gone = {*failure.faults, *failure.left}
    ran = [row for row in rows if row not in gone]
    if failure.outputs is None or any(output.shape[:1] != (len(ran),) for output in failure.outputs):
        return Parted(None, (), _without(batch, owner, why), refused)
    again = {int(owner[row]) for row in {*failure.left} & {*rows}} - why.keys()
    taken = ~np.isin(owner[ran], [*why, *again])
    outputs = failure.outputs if taken.all() else [output[taken] for output in failure.outputs]
    rest = _without(batch, owner, set(range(len(records))) - again)
    return Parted(_without(batch, owner, {*why, *again}), outputs, rest, refused)


def _without(batch: Batch, owner: Array, records: Collection[int]) -> Batch | None:
    """The batch without these records, by their index; None: no record is left. `owner`: the record of each row."""
    kept, rows = without(batch.chunks, records), np.flatnonzero(~np.isin(owner, [*records]))
    if not kept:
        return None
    feeds = {name: array[rows] for name, array in batch.feeds.items()}
    states = {name: array[rows] for name, array in batch.states.items()}
    return batch._replace(chunks=kept, feeds=feeds, rows=len(rows), states=states)


def _owners(chunks: Sequence[Chunk]) -> Array:
    """The index of its record in the batch, for each row."""
    rows_each = [rows for chunk in chunks for rows in chunk.rows]
    return np.repeat(np.arange(len(rows_each)), rows_each)


def _part(batch: Batch, chunks: Sequence[Chunk], at: slice) -> Batch:
    feeds = {name: array[at] for name, array in batch.feeds.items()}
    states = {name: array[at] for name, array in batch.states.items()}
    return Batch(chunks, feeds, len(range(batch.rows)[at]), batch.closed_by, states)


def _is_finite(array: Array) -> bool:
    """True if no element is NaN or infinity. A few bytes are searched in half the time that `all` takes to begin."""
    finite = np.isfinite(array)
    return b"\0" not in finite.tobytes() if finite.size < FEW else bool(finite.all())


def _are_small_and_finite(arrays: Sequence[Array]) -> bool:
    is_small = sum([array.size for array in arrays]) < SMALL * len(arrays)  # false if there is none
    return is_small and bool(np.isfinite(np.concatenate(arrays, axis=None)).all())


def reject(one: Chunk, failure: RunFailure) -> Refused:
    """The refusal of a record on which the model fails even alone."""
    why = VALUE_NOT_TAKEN if failure.code is Code.INVALID_ARGUMENT else "the model failed on this record"
    return refusal(one, 0, failure.code, f"{why}: {failure.message}")
