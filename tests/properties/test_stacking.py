"""Stacking, splitting, halving, cutting and rejoining return every row to its own record, for every datatype."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.chunks import chunk, floats, offsets, spec
from tests.meeting import meeting, met
from worker.core.chunk import Batch, Chunk, Prediction, Shapes, cut
from worker.core.failures import Code, RowFault, RunFailure
from worker.core.records import Array, ClosedBy, Tensor, Value
from worker.core.tensors.buckets import Axis, Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import DTYPES, TensorSpec
from worker.core.tensors.stacking import Split, Stacker, halve, parted, reject

ROWS = st.lists(st.integers(1, 5), min_size=1, max_size=6)
DIMS = st.lists(st.integers(1, 3), max_size=2).map(tuple)


class Case(NamedTuple):
    """A model that returns its inputs; records in chunks, and the arrays that each record brought, by offset."""

    signature: Signature
    chunks: list[Chunk]
    held: list[list[Array]]

    @property
    def lenient(self) -> Stacker:
        return Stacker(self.signature, refuse_non_finite_input=False, refuse_non_finite_output=False)

    def stacked(self, chunks: Sequence[Chunk]) -> Batch:
        batch, refused = self.lenient.stack(chunks, ClosedBy.SIZE)
        assert batch is not None
        assert not refused
        return batch

    def split(self, batch: Batch) -> list[Prediction]:
        split = self.lenient.split(batch, echo(batch))
        assert isinstance(split, Split)
        assert not split.refused
        return split.predicted


def as_tensor(array: Array, form: int) -> Tensor:
    """A tensor in a codec's forms: bytes, or a view at any address; strings as a list."""
    if array.dtype == object:
        return array.reshape(-1).tolist()
    if form == 0:
        return array.tobytes()
    return memoryview(b"#" * (form - 1) + array.tobytes())[form - 1 :]


@st.composite
def arrays_of(draw: st.DrawFn, datatype: str, shape: tuple[int, ...]) -> Array:
    if datatype == "BYTES":
        flat = draw(st.lists(st.text(max_size=3), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        array: Array = np.array(flat, object).reshape(shape)
        return array
    drawn: Array = draw(arrays.arrays(DTYPES[datatype], shape))
    return drawn


@st.composite
def in_chunks(draw: st.DrawFn, whole: Chunk) -> list[Chunk]:
    """The records of one chunk in chunks of any sizes, in order."""
    inner = draw(st.sets(st.integers(1, len(whole) - 1))) if len(whole) > 1 else set()
    return [whole.take(start, stop) for start, stop in pairwise([0, *sorted(inner), len(whole)])]


@st.composite
def models_and_chunks(draw: st.DrawFn) -> Case:
    """One or two inputs of any datatypes, and records of equal shapes."""
    inputs = tuple(
        TensorSpec(f"x{at}", draw(st.sampled_from(sorted(DTYPES))), draw(DIMS)) for at in range(draw(st.integers(1, 2)))
    )
    outputs = tuple(TensorSpec(f"y{at}", each.datatype, each.dims) for at, each in enumerate(inputs))
    shapes = tuple(tuple(d for d in each.dims if d is not None) for each in inputs)
    rows = draw(ROWS)
    held = [[draw(arrays_of(s.datatype, (n, *dims))) for s, dims in zip(inputs, shapes, strict=True)] for n in rows]
    columns = [[as_tensor(array, draw(st.integers(0, 3))) for array in column] for column in zip(*held, strict=True)]
    whole = chunk(*range(len(rows)), rows=rows, tensors=columns, shapes=shapes)
    return Case(Signature("m", "1", inputs, outputs), draw(in_chunks(whole)), held)


PADS: dict[str, Value] = {"INT64": -1, "FP32": 0.5, "BYTES": "-", "BOOL": True}


@st.composite
def padded_models_and_chunks(draw: st.DrawFn) -> Case:
    """One to three inputs with one or two padded axes, shared or not, and records of any lengths that fit."""
    ranks = draw(st.lists(st.sampled_from([0, 1, 1, 1, 2]), min_size=1, max_size=3).filter(any))
    inputs = tuple(
        TensorSpec(f"x{at}", draw(st.sampled_from(sorted(PADS))), (None,) * rank) for at, rank in enumerate(ranks)
    )
    spots = [Spot(at, n) for at, rank in enumerate(ranks) for n in range(rank)]
    names = [draw(st.sampled_from("ab")) for _ in spots]
    most = {name: draw(st.integers(1, 5)) for name in sorted(set(names))}
    axes: list[Axis] = []
    for name, longest in most.items():
        own = [spot for spot, its_name in zip(spots, names, strict=True) if its_name == name]
        pads = {spot: PADS[inputs[spot.tensor].datatype] for spot in own}
        axes.append(Axis(name, (longest,), pads, own))
    rows = draw(ROWS)
    shapes: list[Shapes] = []
    for _ in rows:
        lengths = {name: draw(st.integers(1, length)) for name, length in most.items()}
        of_spot = {spot: lengths[name] for spot, name in zip(spots, names, strict=True)}
        shapes.append(tuple(tuple(of_spot[Spot(at, n)] for n in range(rank)) for at, rank in enumerate(ranks)))
    held = [
        [draw(arrays_of(each.datatype, (n, *dims))) for each, dims in zip(inputs, own, strict=True)]
        for n, own in zip(rows, shapes, strict=True)
    ]
    columns = [[as_tensor(array, draw(st.integers(0, 3))) for array in column] for column in zip(*held, strict=True)]
    whole = chunk(*range(len(rows)), rows=rows, tensors=columns, shapes=shapes)
    outputs = tuple(TensorSpec(f"y{at}", each.datatype, each.dims) for at, each in enumerate(inputs))
    return Case(Signature("m", "1", inputs, outputs, axes=tuple(axes)), draw(in_chunks(whole)), held)


def echo(batch: Batch) -> list[Array]:
    return [array.copy() for array in batch.feeds.values()]


def own_rows(signature: Signature, prediction: Prediction) -> dict[int, list[Array]]:
    """Each record's own part of each output, by its offset."""
    answered, outputs, stop, _ = prediction
    found: dict[int, list[Array]] = {}
    for record, rows, shapes in zip(answered.records, answered.rows, answered.shapes, strict=True):
        start, stop = stop, stop + rows
        found[record.offset] = list(signature.buckets.own_parts(outputs, shapes, start, stop))
    return found


def assert_answered(case: Case, predictions: Sequence[Prediction], expected: Sequence[int]) -> None:
    """These records are answered once, in order, each with what it brought."""
    assert offsets([one.chunk for one in predictions]) == list(expected)
    for prediction in predictions:
        for offset, own in own_rows(case.signature, prediction).items():
            for output, brought in zip(own, case.held[offset], strict=True):
                assert output.dtype == brought.dtype
                np.testing.assert_array_equal(output, brought)


def _is_not_aligned(case: Case) -> bool:
    """True if a tensor is a view at an unaligned address."""
    return any(
        isinstance(tensor, memoryview) and not np.frombuffer(tensor, each.dtype).flags.aligned
        for one in case.chunks
        for each, column in zip(case.signature.inputs, one.tensors, strict=True)
        for tensor in column
    )


@meeting(
    *("several chunks", "a chunk of several records", "two inputs", "strings", "bytes that are not aligned"),
    "rows of several elements",
)
@given(models_and_chunks())
def test_what_is_stacked_and_split_is_what_came(case: Case) -> None:
    """Every record finds its own rows in the answer, for any datatype and any place in memory."""
    met("several chunks", is_so=len(case.chunks) > 1)
    met("a chunk of several records", is_so=any(len(one) > 1 for one in case.chunks))
    met("two inputs", is_so=len(case.signature.inputs) > 1)
    met("strings", is_so=any(each.is_text for each in case.signature.inputs))
    met("bytes that are not aligned", is_so=_is_not_aligned(case))
    met("rows of several elements", is_so=any(array.size > len(array) for array in case.held[0]))

    batch = case.stacked(case.chunks)

    assert all(array.flags.aligned and array.flags.c_contiguous for array in batch.feeds.values())
    assert_answered(case, case.split(batch), range(len(case.held)))


@meeting(
    "lengths differ", "rows differ", "two inputs of one dimension", "strings", "an input of two dimensions", "two axes"
)
@given(padded_models_and_chunks())
def test_padding_is_what_a_plain_loop_writes(case: Case) -> None:
    """Each element stands where its record has it, the pad everywhere else, and the answers are cut back."""
    signature, chunks, held = case
    ranks = [len(each.dims) for each in signature.inputs]
    met("lengths differ", is_so=len({own for one in chunks for own in one.shapes}) > 1)
    met("rows differ", is_so=len({rows for one in chunks for rows in one.rows}) > 1)
    met("two inputs of one dimension", is_so=ranks.count(1) > 1)
    met("an input of two dimensions", is_so=2 in ranks)
    met("strings", is_so=any(each.is_text for each in signature.inputs))
    met("two axes", is_so=len(signature.axes) > 1)

    batch = case.stacked(chunks)

    for at, each in enumerate(signature.inputs):
        rows = [plain_row(signature, at, row) for arrays_of_one in held for row in arrays_of_one[at]]
        np.testing.assert_array_equal(batch.feeds[each.name], np.array(rows, each.dtype))
    assert_answered(case, case.split(batch), range(len(held)))


def plain_row(signature: Signature, at: int, row: Array) -> object:
    """One row of input `at` as nested lists, padded element by element."""
    lengths = {
        spot.dimension: axis.boundaries[0] for axis in signature.axes for spot in axis.inputs if spot.tensor == at
    }
    pad = PADS[signature.inputs[at].datatype]
    if not lengths:
        return row
    if len(lengths) == 1:
        return [row[n] if n < len(row) else pad for n in range(lengths[0])]
    return [
        [row[n][m] if n < len(row) and m < len(row[n]) else pad for m in range(lengths[1])] for n in range(lengths[0])
    ]


@meeting("none is bad", "all are bad", "some are bad", "a bad one alone in its chunk", "a bad one among good ones")
@given(models_and_chunks() | padded_models_and_chunks(), st.data())
def test_halving_finds_every_bad_record_and_no_other(case: Case, data: st.DataObject) -> None:
    """The model fails on each batch with a bad record. In the end all others are answered, in order."""
    count = len(case.held)
    bad = data.draw(st.sets(st.integers(0, count - 1)) | st.just(set(range(count))))
    met("none is bad", is_so=not bad)
    met("all are bad", is_so=len(bad) == count > 1)
    met("some are bad", is_so=0 < len(bad) < count)
    met(
        "a bad one alone in its chunk", is_so=any(len(one) == 1 and one.records[0].offset in bad for one in case.chunks)
    )
    met("a bad one among good ones", is_so=any(0 < len(bad & set(offsets([one]))) < len(one) for one in case.chunks))
    ahead, answered, refused = [case.stacked(case.chunks)], list[Prediction](), list[int]()

    while ahead:
        batch = ahead.pop(0)
        found = offsets(batch.chunks)
        if bad.isdisjoint(found):
            answered += case.split(batch)
        elif len(found) == 1:
            refused.append(reject(batch.chunks[0], RunFailure("no")).rejection.record.offset)
        else:
            halves = halve(batch)
            assert sum(half.rows for half in halves) == batch.rows
            assert [len(offsets(half.chunks)) for half in halves] == [len(found) // 2, -(-len(found) // 2)]
            ahead = [*halves, *ahead]

    assert refused == sorted(bad)
    assert_answered(case, answered, sorted(set(range(count)) - bad))


@meeting("none is good", "some are good", "no fault", "two faults in a record", "rows are left", "several of a record")
@given(models_and_chunks() | padded_models_and_chunks(), st.data())
def test_records_without_faults_are_answered_as_if_they_had_come_alone(case: Case, data: st.DataObject) -> None:
    """Any rows may have faults, and any be left for later. The others' outputs, if they ran, are their records'."""
    batch = case.stacked(case.chunks)
    left = data.draw(st.none() | st.sets(st.integers(0, batch.rows - 1)))
    faults = data.draw(st.sets(st.integers(0, batch.rows - 1)) | st.just(set(range(batch.rows))))
    owners = [record.offset for one in case.chunks for record, rows in zip(one.records, one.rows, strict=True)
              for _ in range(rows)]  # fmt: skip
    bad = {owners[row] for row in faults}
    good = [offset for offset in range(len(case.held)) if offset not in bad]
    again = good if left is None else [offset for offset in good if offset in {owners[row] for row in left}]
    met("none is good", is_so=not good)
    met("some are good", is_so=bool(good and bad))
    met("no fault", is_so=not bad)
    met("two faults in a record", is_so=len(faults) > len(bad))
    met("rows are left", is_so=bool(again) and len(again) < len(good))
    met("several of a record", is_so=bool(bad) and any(owners.count(offset) > 1 for offset in good))
    named = {row: RowFault(Code.INTERNAL, str(owners[row])) for row in faults}
    failure = RunFailure("no", faults=named)
    if left is not None:
        ran = [row for row in range(batch.rows) if row not in faults and row not in left]
        failure = RunFailure("no", faults=named, left=left, outputs=[output[ran] for output in echo(batch)])

    done, outputs, rest, refused = parted(batch, failure)

    assert [int(one.rejection.message) for one in refused] == sorted(bad)
    assert [one.rejection.record.offset for one in refused] == sorted(bad)
    assert sorted(offsets(rest.chunks) if rest else []) == again
    split = case.lenient.split(done, outputs) if done else Split([], [])
    assert isinstance(split, Split)
    assert_answered(case, split.predicted, [offset for offset in good if offset not in again])
    assert_answered(case, case.split(rest) if rest else [], again)


@meeting("pieces come home in another order", "the last piece is smaller")
@given(models_and_chunks(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_record_cut_and_made_whole_is_what_it_was(case: Case, rows: int, dice: random.Random) -> None:
    """The pieces run apart and come back in any order; one answer has all rows in order."""
    for whole in [one.take(at, at + 1) for one in case.chunks for at in range(len(one))]:
        pieces = cut(whole, rows)
        assert sum(piece.rows[0] for piece in pieces) == whole.rows[0]
        assert max(piece.rows[0] for piece in pieces) <= rows
        homecoming = [case.split(case.stacked([piece]))[0] for piece in pieces]
        met("the last piece is smaller", is_so=pieces[-1].rows[0] < pieces[0].rows[0])
        dice.shuffle(homecoming)
        met("pieces come home in another order", is_so=[outcome.chunk for outcome in homecoming] != pieces)

        collected = [one.chunk.reassembly.collect(one.chunk, one) for one in homecoming if one.chunk.reassembly]

        assert collected[:-1] == [None] * (len(pieces) - 1)
        assert isinstance(collected[-1], Prediction)
        assert collected[-1].chunk is whole
        assert_answered(case, [collected[-1]], offsets([whole]))


@meeting("the first of a chunk", "the last of a chunk", "one within a chunk", "a whole chunk", "none")
@given(
    st.lists(
        st.lists(
            st.lists(st.sampled_from([1.0, 1.0, 2.0, np.nan, np.inf, -np.inf]), min_size=1, max_size=3), min_size=1
        ),
        min_size=1,
    )
)
def test_non_finite_values_cost_their_own_record_alone(values: list[list[list[float]]]) -> None:
    """In inputs and in outputs, a record with such a value is refused, and every other one is answered."""
    chunks: list[Chunk] = []
    for of_chunk in values:
        first = len(offsets(chunks))
        ids, rows = range(first, first + len(of_chunk)), [len(own) for own in of_chunk]
        chunks.append(chunk(*ids, rows=rows, tensors=[[floats(*own) for own in of_chunk]]))
        is_bad = [not np.isfinite(own).all() for own in of_chunk]
        met("the first of a chunk", is_so=len(of_chunk) > 1 and is_bad[0])
        met("the last of a chunk", is_so=len(of_chunk) > 1 and is_bad[-1])
        met("one within a chunk", is_so=any(is_bad[1:-1]))
        met("a whole chunk", is_so=len(of_chunk) > 1 and all(is_bad))
    own_values = [own for of_chunk in values for own in of_chunk]
    bad = [at for at, own in enumerate(own_values) if not np.isfinite(own).all()]
    finite = [at for at in range(len(own_values)) if at not in bad]
    met("none", is_so=not bad)
    signature = Signature("m", "1", (spec("x"),), (spec("y"),))
    case = Case(signature, chunks, [[np.array(own, "<f4").reshape(-1, 1)] for own in own_values])
    strict = Stacker(signature)

    batch, refused = strict.stack(chunks, ClosedBy.SIZE)

    assert [(one.chunk.records[one.at].offset, one.rejection.record.offset) for one in refused] == [(n, n) for n in bad]
    assert offsets(batch.chunks) == finite if batch else not finite
    whole = case.stacked(chunks)
    split = strict.split(whole, echo(whole))
    assert isinstance(split, Split)
    assert [(one.chunk.records[one.at].offset, one.rejection.record.offset) for one in split.refused] == [
        (n, n) for n in bad
    ]
    assert_answered(case, split.predicted, finite)
