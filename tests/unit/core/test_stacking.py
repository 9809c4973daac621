"""Stacking: rows joined, answers split, batches halved, records cut and reassembled."""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest

from tests.chunks import batch, chunk, floats, offsets, one, singles, spec, stacker
from worker.core.chunk import PIECES_DIFFER, Batch, Chunk, Prediction, Refused, cut
from worker.core.failures import Code, RowFault, RunFailure, failure_of_rows
from worker.core.records import Array, ClosedBy
from worker.core.tensors.stacking import MANY, VALUE_NOT_TAKEN, Split, Stacker, halve, parted, reject


def answer(piece: Chunk, *values: float) -> Prediction:
    return Prediction(piece, (np.asarray(values, "<f4").reshape(-1, 1),))


def guilty(refused: list[Refused]) -> list[int]:
    """The offsets of records that are refused; each refusal names its own record."""
    assert all(chunk.records[at] is rejection.record for chunk, at, rejection in refused)
    return [rejection.record.offset for _, _, rejection in refused]


def split(by: Stacker, stacked: Batch, *outputs: Array) -> Split:
    found = by.split(stacked, outputs)
    assert isinstance(found, Split)
    return found


def rows_by_offset(parts: Split) -> dict[int, list[object]]:
    """The rows of the first output that each record is answered with."""
    found: dict[int, list[object]] = {}
    for answered, outputs, start, _ in parts.predicted:
        rows = iter(outputs[0][start:].tolist())
        for record, count in zip(answered.records, answered.rows, strict=True):
            found[record.offset] = [next(rows) for _ in range(count)]
    return found


def test_a_lone_aligned_tensor_is_not_copied() -> None:
    """The array of a batch with one record is a view of the record's own bytes."""
    values = np.arange(3, dtype="<f4")

    stacked = batch(chunk(rows=3, tensors=[[values.data]]))

    assert np.shares_memory(stacked.feeds["x"], values)


def test_of_many_small_inputs_a_value_that_is_not_finite_is_found_too() -> None:
    """Small inputs are checked together, and one by one only where that finds something."""
    names = [f"x{number}" for number in range(MANY + 1)]
    of_many = stacker(*map(spec, names))
    shapes = ((1,),) * len(names)
    good = [[floats(1.0), floats(1.0)]] * MANY
    bad = chunk(0, 1, tensors=[*good, [floats(2.0), floats(math.nan)]], shapes=shapes)

    assert batch(bad.take(0, 1), by=of_many).feeds[names[-1]].tolist() == [[2.0]]
    _, [(_, at, rejection)] = of_many.stack([bad], ClosedBy.SIZE)

    assert at == 1
    assert rejection.record.offset == 1
    assert rejection.message == f"input {names[-1]}: holds NaN or infinity"


@pytest.mark.parametrize("where", [(row, column) for row in range(2) for column in range(3)])
@pytest.mark.parametrize("are_apart", [False, True])
def test_non_finite_values_convict_wherever_in_a_row_they_stand(where: tuple[int, int], are_apart: object) -> None:
    """It may be in any row and column, in inputs and in outputs."""
    wide = stacker(spec("x", dims=(3,)), outputs=[spec("y", dims=(3,))])
    good, bad = np.ones((2, 3), "<f4"), np.ones((2, 3), "<f4")
    bad[where] = math.inf
    three = chunk(0, 1, 2, rows=2, tensors=[[each.tobytes() for each in (good, bad, good)]], shapes=((3,),))
    chunks = singles(three) if are_apart else [three]

    stacked, refused = wide.stack(chunks, ClosedBy.SIZE)
    assert stacked is not None
    parts = split(wide, stacked, np.concatenate([good, bad]))

    assert offsets(stacked.chunks) == [0, 2]
    assert guilty(refused) == [1]
    assert refused[0].rejection.code is Code.INVALID_ARGUMENT
    assert refused[0].rejection.message == "input x: holds NaN or infinity"
    assert (list(rows_by_offset(parts)), guilty(parts.refused)) == ([0], [2])
    assert parts.refused[0].rejection.code is Code.INTERNAL
    assert parts.refused[0].rejection.message == "output y: the model answered NaN or infinity"


def test_non_finite_values_pass_where_they_are_allowed() -> None:
    """The operator may have a model that takes and gives such values."""
    lenient = Stacker(stacker().signature, refuse_non_finite_input=False, refuse_non_finite_output=False)

    parts = split(lenient, batch(one(0, math.nan), by=lenient), np.array([[math.inf]], "f4"))

    assert rows_by_offset(parts) == {0: [[math.inf]]}


def test_the_model_gets_states_as_further_inputs() -> None:
    """A batch without states has only its records' tensors."""
    stateless = batch(one(0, 1.0))
    stateful = Batch(stateless.chunks, stateless.feeds, 1, ClosedBy.SIZE, {"before": np.zeros((1, 1), "f4")})

    assert list(stateless.all_feeds) == ["x"]
    assert list(stateful.all_feeds) == ["x", "before"]


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (0, 1)])
def test_an_output_of_other_rows_is_nobodys(shape: tuple[int, ...]) -> None:
    """With a row too few or too many, no row can be matched to a record: the run failed."""
    failure = stacker().split(batch(chunk(1, 2)), [np.zeros(shape, "f4")])

    assert isinstance(failure, RunFailure)
    assert failure.message.startswith("output y: 2 rows went in, shape")
    assert failure.loses_rows


def test_a_batch_is_halved_between_records() -> None:
    """The rows of one record stay together, and the arrays are views."""
    stacked = batch(chunk(1), chunk(2, 3, rows=[5, 1]), chunk(4))

    first, second = halve(stacked)

    assert (offsets(first.chunks), offsets(second.chunks)) == ([1, 2], [3, 4])
    assert (first.rows, second.rows) == (6, 2)
    assert all(np.shares_memory(half.feeds["x"], stacked.feeds["x"]) for half in (first, second))


def test_a_record_that_fails_alone_is_halved_between_its_rows() -> None:
    """Its pieces are answered as one."""
    first, second = halve(batch(one(3, 1.0, 2.0, 3.0)))

    assert [half.feeds["x"].tolist() for half in (first, second)] == [[[1], [2]], [[3]]]
    [head], [tail] = first.chunks, second.chunks
    assert head.reassembly is tail.reassembly
    assert (offsets([head, tail]), head.rows, tail.rows) == ([3, 3], [2], [1])


def test_halves_keep_their_own_states() -> None:
    """They run on the states of their own rows."""
    stacked = batch(chunk(0, 1, 2, 3))
    states = {"before": np.arange(4.0).reshape(4, 1)}

    first, second = halve(Batch(stacked.chunks, stacked.feeds, 4, stacked.closed_by, states))

    assert [half.states["before"].tolist() for half in (first, second)] == [[[0], [1]], [[2], [3]]]


def test_a_batch_without_its_faults_has_the_rows_of_the_other_records() -> None:
    """A record is refused with its first fault; the others keep their rows, their states and their company."""
    stacked = batch(chunk(1, 2, rows=[2, 1]), chunk(3, rows=3), chunk(4, 5))
    alone = stacked._replace(states={"before": np.arange(8.0).reshape(8, 1)}, is_alone=True)
    no, first = RowFault(Code.INTERNAL, "no"), RowFault(Code.INVALID_ARGUMENT, "first")

    done, _, rest, refused = parted(alone, failure_of_rows({4: no, 3: first, 7: no, 8: no}))

    assert [(offsets([one.chunk])[one.at], one.rejection.message) for one in refused] == [(3, "first"), (5, "no")]
    assert guilty(refused) == [3, 5]
    assert [one.rejection.code for one in refused] == [first.code, no.code]
    assert done is None
    assert rest is not None
    assert (offsets(rest.chunks), rest.rows, rest.is_alone) == ([1, 2, 4], 4, True)
    assert rest.feeds["x"].tolist() == [[1], [1], [2], [4]]
    assert rest.states["before"].tolist() == [[0], [1], [2], [6]]


def test_a_batch_of_which_every_record_has_a_fault_leaves_none() -> None:
    """Each record is refused."""
    faults = dict.fromkeys(range(2), RowFault(Code.INTERNAL, "no"))

    done, _, rest, refused = parted(batch(chunk(1, 2)), failure_of_rows(faults))

    assert (done, rest, guilty(refused)) == (None, None, [1, 2])


def test_outputs_of_too_few_rows_are_nobodys() -> None:
    """Their records run again."""
    failure = failure_of_rows({0: RowFault(Code.INTERNAL, "no")}, outputs=[np.zeros((1, 1))])

    done, _, rest, refused = parted(batch(chunk(1, 2, 3)), failure)

    assert (done, guilty(refused)) == (None, [1])
    assert rest is not None
    assert offsets(rest.chunks) == [2, 3]


def test_a_record_has_its_rows_of_the_outputs_or_runs_again() -> None:
    """The outputs are of the rows without a fault that were not left. A record with one of several left runs again."""
    stacked = batch(chunk(1, 2, rows=[2, 1]), chunk(3, rows=3), chunk(4, 5))
    ran = [np.array([[10.0], [11], [30], [32], [50]])]  # rows 0, 1, 3, 5 and 7
    failure = failure_of_rows({2: RowFault(Code.INTERNAL, "no")}, (4, 6, 9), ran)

    done, outputs, rest, refused = parted(stacked, failure)

    assert guilty(refused) == [2]
    assert done is not None
    assert rest is not None
    assert (offsets(done.chunks), done.rows, done.feeds["x"].tolist()) == ([1, 5], 3, [[1], [1], [5]])
    assert [output.tolist() for output in outputs] == [[[10], [11], [50]]]
    assert (offsets(rest.chunks), rest.rows, rest.feeds["x"].tolist()) == ([3, 4], 4, [[3], [3], [3], [4]])


def test_texts_are_cut_between_rows() -> None:
    """Numbers are cut so, too. Each piece has its share of the bytes, and the last one has the rows that are left."""
    words = list("abcdef")
    numbers = np.arange(6, dtype="<f4")
    whole = chunk(9, rows=3, tensors=[[words], [numbers.tobytes()]], shapes=((2,), (2,)), sizes=100)

    first, second = cut(whole, 2)

    assert [piece.tensors[0][0] for piece in (first, second)] == [["a", "b", "c", "d"], ["e", "f"]]
    assert [piece.tensors[1][0] for piece in (first, second)] == [floats(0, 1, 2, 3), floats(4, 5)]
    assert [(list(piece.rows), list(piece.sizes)) for piece in (first, second)] == [([2], [67]), ([1], [34])]


def test_one_rejected_piece_rejects_the_record() -> None:
    """The other pieces are dropped: they are not stacked any more, and their answers are ignored."""
    pieces = cut(one(9, 1.0, 2.0, 3.0), 1)
    reassembly = pieces[0].reassembly
    assert reassembly is not None
    _, _, wrong = reject(pieces[1], RunFailure("poisoned", Code.RESOURCE_EXHAUSTED))

    assert reassembly.collect(pieces[0], answer(pieces[0], 10)) is None
    assert reassembly.collect(pieces[1], wrong) == wrong
    assert reassembly.collect(pieces[2], answer(pieces[2], 30)) is None

    assert stacker().stack(pieces[2:], ClosedBy.SIZE) == (None, [])
    assert wrong.message == "the model failed on this record: poisoned"
    assert reject(one(0, 1), RunFailure("no", Code.INVALID_ARGUMENT)).rejection.message == f"{VALUE_NOT_TAKEN}: no"
    assert wrong.code is Code.RESOURCE_EXHAUSTED
    assert wrong.record.offset == 9


def test_pieces_whose_outputs_differ_in_their_shapes_have_no_common_answer() -> None:
    """Such an output depends on the values."""
    whole = one(9, 1.0, 2.0)
    first, second = cut(whole, 1)
    assert first.reassembly is not None

    assert first.reassembly.collect(first, Prediction(first, (np.zeros((1, 2)),))) is None
    outcome = first.reassembly.collect(second, Prediction(second, (np.zeros((1, 3)),)))

    assert outcome == reject(whole, RunFailure(PIECES_DIFFER)).rejection


def test_each_piece_runs_on_the_state_of_the_one_before() -> None:
    """The whole leaves the state of its last row, which is one row of each tensor."""
    first, second = cut(one(9, 1.0, 2.0, 3.0), 2)
    reassembly = first.reassembly
    assert reassembly is not None

    outputs = [np.arange(9.0).reshape(9, 1)]
    states = [[rows, np.hstack([rows, -rows])] for rows in (outputs[0], outputs[0] + 10)]
    reassembly.collect(first, Prediction(first, outputs, 4, states[0]))
    assert reassembly.carried is not None
    assert [array.tolist() for array in reassembly.carried] == [[[5.0]], [[5.0, -5.0]]]
    outcome = reassembly.collect(second, Prediction(second, outputs, 0, states[1]))

    assert isinstance(outcome, Prediction)
    assert outcome.chunk is reassembly.whole
    assert outcome.outputs[0].tolist() == [[4.0], [5.0], [0.0]]
    assert outcome.states is not None
    assert [array.tolist() for array in outcome.states] == [[[10.0]], [[10.0, -10.0]]]


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_record_made_whole_is_freed_at_once(is_wrong: object) -> None:
    """Records are cut because they are large, so their memory may not wait for the garbage collector."""
    values = np.array([1, 2], "<f4")
    freed = weakref.ref(values)
    gc.disable()
    try:
        pieces = cut(chunk(rows=2, tensors=[[values.data]]), 1)
        for piece in pieces:
            assert piece.reassembly is not None
            outcome = reject(piece, RunFailure("no")).rejection if is_wrong else answer(piece, 1)
            piece.reassembly.collect(piece, outcome)

        del values, pieces, piece, outcome

        assert freed() is None
    finally:
        gc.enable()
