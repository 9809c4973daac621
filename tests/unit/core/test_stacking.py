"""Stacking: rows joined, answers split, batches halved, requests cut and reassembled."""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest

from tests.builders import batch, floats, request, spec, stacker
from worker.core.failures import Code, RunFailure
from worker.core.records import Array, Batch, ClosedBy, Outcome, Prediction, Rejection, Request
from worker.core.tensors.stacking import MANY, VALUE_NOT_TAKEN, Stacker, cut, halve, reject


def stack(requests: list[Request], by: Stacker | None = None) -> Batch:
    stacked, refused = (by or stacker()).stack(requests, ClosedBy.SIZE)
    assert not refused
    assert stacked is not None
    return stacked


def rows(*values: float, offset: int = 0) -> Request:
    return request(offset, rows=len(values), tensors=[floats(*values)])


def answer(piece: Request, *values: float) -> Prediction:
    return Prediction(piece, (np.asarray(values, "<f4").reshape(-1, 1),))


def test_a_lone_aligned_tensor_is_not_copied() -> None:
    """The array of a batch with one request is a view of the record's own bytes."""
    values = np.arange(3, dtype="<f4")

    stacked = stack([request(rows=3, tensors=[values])])

    assert np.shares_memory(stacked.feeds["x"], values)


def test_non_finite_input_convicts_only_its_own_request() -> None:
    """The other requests are stacked without the one that has a NaN."""
    stacked, refused = stacker().stack([rows(1), rows(2, math.nan, offset=1), rows(3)], ClosedBy.LINGER)

    assert stacked is not None
    assert stacked.feeds["x"].tolist() == [[1], [3]]
    [(guilty, rejection)] = refused
    assert guilty.record.offset == 1
    assert (rejection.code, rejection.message) == (Code.INVALID_ARGUMENT, "input x: holds NaN or infinity")


def test_of_many_small_inputs_a_value_that_is_not_finite_is_found_too() -> None:
    """Small inputs are checked together, and one by one only where that finds something."""
    names = [f"x{number}" for number in range(MANY + 1)]
    of_many = stacker(*map(spec, names))
    good, bad = ([floats(1.0)] * MANY + [floats(last)] for last in (2.0, math.nan))
    requests = [request(at, tensors=tensors, shapes=((1,),) * len(names)) for at, tensors in enumerate((good, bad))]

    assert stack(requests[:1], of_many).feeds[names[-1]].tolist() == [[2.0]]
    _, [(guilty, rejection)] = of_many.stack(requests, ClosedBy.SIZE)

    assert guilty.record.offset == 1
    assert rejection.message == f"input {names[-1]}: holds NaN or infinity"


@pytest.mark.parametrize("where", [(row, column) for row in range(2) for column in range(3)])
def test_non_finite_values_convict_wherever_in_a_row_they_stand(where: tuple[int, int]) -> None:
    """It may be in any row and column, in inputs and in outputs."""
    wide = stacker(spec("x", dims=(3,)), outputs=[spec("y", dims=(3,))])
    good, bad = np.ones((2, 3), "<f4"), np.ones((2, 3), "<f4")
    bad[where] = math.inf
    requests = [request(at, rows=2, tensors=[values], shapes=((3,),)) for at, values in enumerate((good, bad, good))]

    stacked, refused = wide.stack(requests, ClosedBy.SIZE)
    outcomes = judged(wide, stack([requests[0], requests[2]], wide), np.concatenate([good, bad]))

    assert stacked is not None
    assert [one.record.offset for one in stacked.requests] == [0, 2]
    assert [guilty.record.offset for guilty, _ in refused] == [1]
    assert [type(outcome) for _, outcome in outcomes] == [Prediction, Rejection]


def test_a_group_of_the_guilty_makes_no_batch() -> None:
    """An empty batch is not run."""
    stacked, refused = stacker().stack([rows(math.inf)], ClosedBy.LINGER)

    assert stacked is None
    assert len(refused) == 1


def test_non_finite_values_pass_where_they_are_allowed() -> None:
    """The operator may have a model that takes and gives such values."""
    lenient = Stacker(stacker().signature, refuse_non_finite_input=False, refuse_non_finite_output=False)

    stacked = stack([rows(math.nan)], lenient)
    [(_, outcome)] = judged(lenient, stacked, np.array([[math.inf]], "f4"))

    assert isinstance(outcome, Prediction)


def judged(by: Stacker, stacked: Batch, *outputs: Array) -> list[tuple[Request, Outcome]]:
    found = by.split(stacked, outputs)
    assert not isinstance(found, RunFailure)
    predicted = [(prediction.request, prediction) for prediction in found.predicted]
    return sorted([*predicted, *found.refused], key=lambda judged: stacked.requests.index(judged[0]))


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (0, 1)])
def test_an_output_of_other_rows_is_nobodys(shape: tuple[int, ...]) -> None:
    """With a row too few or too many, no row can be matched to a request: the run failed."""
    failure = stacker().split(stack([rows(1), rows(2)]), [np.zeros(shape, "f4")])

    assert isinstance(failure, RunFailure)
    assert failure.message.startswith("output y: 2 rows went in, shape")
    assert failure.loses_rows


def test_a_batch_is_halved_between_requests() -> None:
    """The rows of one request stay together, and the arrays are views."""
    stacked = batch(rows(1), rows(2, 3), rows(4))

    first, second = halve(stacked)

    assert (first.rows, second.rows) == (1, 3)
    assert first.feeds["x"].tolist() == [[1]]
    assert second.feeds["x"].tolist() == [[2], [3], [4]]
    assert np.shares_memory(second.feeds["x"], stacked.feeds["x"])


def test_one_rejected_piece_rejects_the_request() -> None:
    """The other pieces are dropped: they are not stacked any more, and their answers are ignored."""
    pieces = cut(rows(1, 2, 3, offset=9), 1)
    reassembly = pieces[0].reassembly
    assert reassembly is not None
    wrong = reject(pieces[1], RunFailure("poisoned", Code.RESOURCE_EXHAUSTED))

    assert reassembly.collect(pieces[0], answer(pieces[0], 10)) is None
    assert reassembly.collect(pieces[1], wrong) == wrong
    assert reassembly.collect(pieces[2], answer(pieces[2], 30)) is None

    assert stacker().stack(pieces[2:], ClosedBy.SIZE) == (None, [])
    assert wrong.message == "the model failed on this request: poisoned"
    assert reject(rows(1), RunFailure("no", Code.INVALID_ARGUMENT)).message == f"{VALUE_NOT_TAKEN}: no"
    assert wrong.code is Code.RESOURCE_EXHAUSTED
    assert wrong.record.offset == 9


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_request_made_whole_is_freed_at_once(is_wrong: object) -> None:
    """Requests are cut because they are large, so their memory may not wait for the garbage collector."""
    values = np.array([1, 2], "<f4")
    freed = weakref.ref(values)
    gc.disable()
    try:
        pieces = cut(request(rows=2, tensors=[values]), 1)
        for piece in pieces:
            assert piece.reassembly is not None
            piece.reassembly.collect(piece, reject(piece, RunFailure("no")) if is_wrong else answer(piece, 1))

        del values, pieces, piece

        assert freed() is None
    finally:
        gc.enable()
