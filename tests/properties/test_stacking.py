"""Stacking, splitting, halving, cutting and rejoining return every row to its own request, for every datatype."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.builders import request, spec
from tests.meeting import meeting, met
from worker.core.failures import RunFailure
from worker.core.records import Array, Batch, ClosedBy, Outcome, Prediction, Request, Tensor
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import DTYPES, TensorSpec
from worker.core.tensors.stacking import Stacker, cut, halve

ROWS = st.lists(st.integers(1, 5), min_size=1, max_size=6)
DIMS = st.lists(st.integers(1, 3), max_size=2).map(tuple)


def as_tensor(array: Array, form: int) -> Tensor:
    """A tensor in a codec's forms: bytes, an array, or a view at any address; strings flat."""
    if array.dtype == object:
        return array.reshape(-1)
    if form == 0:
        return array.tobytes()
    if form == 1:
        return array
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
def models_and_requests(draw: st.DrawFn) -> tuple[Signature, list[Request], list[list[Array]]]:
    """A model that returns its one or two inputs of any datatypes; requests, and the arrays of each."""
    inputs = tuple(
        TensorSpec(f"x{at}", draw(st.sampled_from(sorted(DTYPES))), draw(DIMS)) for at in range(draw(st.integers(1, 2)))
    )
    outputs = tuple(TensorSpec(f"y{at}", each.datatype, each.dims) for at, each in enumerate(inputs))
    shapes = tuple(tuple(d for d in each.dims if d is not None) for each in inputs)
    requests, held = [], []
    for offset, rows in enumerate(draw(ROWS)):
        content = [draw(arrays_of(s.datatype, (rows, *shape))) for s, shape in zip(inputs, shapes, strict=True)]
        tensors = [as_tensor(array, draw(st.integers(0, 3))) for array in content]
        requests.append(request(offset, rows=rows, tensors=tensors, shapes=shapes))
        held.append(content)
    return Signature("m", "1", inputs, outputs), requests, held


def _is_not_aligned(signature: Signature, one: Request) -> bool:
    """True if one of its tensors is a view at an unaligned address."""
    views = [
        np.frombuffer(tensor, each.dtype)
        for each, tensor in zip(signature.inputs, one.tensors, strict=True)
        if isinstance(tensor, memoryview)
    ]
    return any(not view.flags.aligned for view in views)


def echo(batch: Batch) -> list[Array]:
    return [array.copy() for array in batch.feeds.values()]


def stacked(signature: Signature, requests: Sequence[Request]) -> Batch:
    lenient = Stacker(signature, refuse_non_finite_input=False, refuse_non_finite_output=False)
    batch, refused = lenient.stack(requests, ClosedBy.SIZE)
    assert batch is not None
    assert not refused
    return batch


def outcomes(signature: Signature, batch: Batch) -> list[tuple[Request, Outcome]]:
    lenient = Stacker(signature, refuse_non_finite_input=False, refuse_non_finite_output=False)
    split = lenient.split(batch, echo(batch))
    assert not isinstance(split, RunFailure)
    assert not split.refused
    return [(prediction.request, prediction) for prediction in split.predicted]


def assert_holds(outcome: Outcome | None, content: list[Array]) -> None:
    assert isinstance(outcome, Prediction)
    for output, expected in zip(outcome.outputs, content, strict=True):
        assert output.dtype == expected.dtype
        np.testing.assert_array_equal(output, expected)


@meeting("several requests", "two inputs", "strings", "bytes that are not aligned", "rows of several elements")
@given(models_and_requests())
def test_what_is_stacked_and_split_is_what_came(case: tuple[Signature, list[Request], list[list[Array]]]) -> None:
    """Every request finds its own rows in the answer, for any datatype and any place in memory."""
    signature, requests, held = case

    met("several requests", is_so=len(requests) > 1)
    met("two inputs", is_so=len(signature.inputs) > 1)
    met("strings", is_so=any(each.is_text for each in signature.inputs))
    met("bytes that are not aligned", is_so=any(_is_not_aligned(signature, one) for one in requests[:1]))
    met("rows of several elements", is_so=any(array.size > len(array) for array in held[0]))

    batch = stacked(signature, requests)

    assert all(array.flags.aligned and array.flags.c_contiguous for array in batch.feeds.values())
    for at, (found, outcome) in enumerate(outcomes(signature, batch)):
        assert found is requests[at]
        assert_holds(outcome, held[at])


@meeting("halved twice")
@given(models_and_requests())
def test_halves_of_halves_are_the_requests_themselves(
    case: tuple[Signature, list[Request], list[list[Array]]],
) -> None:
    """After halving down to single requests, each still finds its own rows."""
    signature, requests, held = case
    met("halved twice", is_so=len(requests) > 2)
    open_batches, alone = [stacked(signature, requests)], []

    while open_batches:
        batch = open_batches.pop(0)
        if len(batch.requests) == 1:
            alone += outcomes(signature, batch)
        else:
            halves = halve(batch)
            assert sum(half.rows for half in halves) == batch.rows
            open_batches = [*halves, *open_batches]

    assert [found for found, _ in alone] == requests
    for (_, outcome), content in zip(alone, held, strict=True):
        assert_holds(outcome, content)


@meeting("pieces come home in another order", "the last piece is smaller")
@given(models_and_requests(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_request_cut_and_made_whole_is_what_it_was(
    case: tuple[Signature, list[Request], list[list[Array]]], rows: int, dice: random.Random
) -> None:
    """The pieces run apart and come back in any order; one answer has all rows in order."""
    signature, requests, held = case
    for whole, content in zip(requests, held, strict=True):
        pieces = cut(whole, rows)
        assert sum(piece.rows for piece in pieces) == whole.rows
        assert max(piece.rows for piece in pieces) <= rows
        homecoming = [outcomes(signature, stacked(signature, [piece]))[0] for piece in pieces]
        met("the last piece is smaller", is_so=pieces[-1].rows < pieces[0].rows)
        dice.shuffle(homecoming)
        met("pieces come home in another order", is_so=[piece for piece, _ in homecoming] != pieces)

        collected = [piece.reassembly.collect(piece, o) for piece, o in homecoming if piece.reassembly]

        assert collected[:-1] == [None] * (len(pieces) - 1)
        assert isinstance(collected[-1], Prediction)
        assert collected[-1].request is whole
        assert_holds(collected[-1], content)


@given(st.lists(st.lists(st.sampled_from([1.0, 2.0, np.nan, np.inf, -np.inf]), min_size=1, max_size=3), min_size=1))
def test_non_finite_values_cost_their_own_request_alone(values: list[list[float]]) -> None:
    """In inputs and in outputs, a request with such a value is rejected, and every other one is answered."""
    strict = Stacker(Signature("m", "1", (spec("x"),), (spec("y"),)))
    requests = [request(at, rows=len(v), tensors=[np.array(v, "<f4")]) for at, v in enumerate(values)]
    finite = [at for at, v in enumerate(values) if np.isfinite(v).all()]

    batch, refused = strict.stack(requests, ClosedBy.SIZE)

    assert sorted(r.record.offset for r, _ in refused) == sorted(set(range(len(values))) - set(finite))
    assert [r.record.offset for r in batch.requests] == finite if batch else not finite
    split = strict.split(*_run_leniently(strict.signature, requests))
    assert not isinstance(split, RunFailure)
    assert [r.record.offset for r, *_ in split.predicted] == finite
    assert sorted(r.record.offset for r, _ in split.refused) == sorted(set(range(len(values))) - set(finite))


def _run_leniently(signature: Signature, requests: list[Request]) -> tuple[Batch, list[Array]]:
    batch = stacked(signature, requests)
    return batch, echo(batch)
