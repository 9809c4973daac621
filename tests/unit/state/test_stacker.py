"""States on their way into a batch, and out of the model's outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders import STATE, SUMS, request, signature, spec
from worker.core.failures import RunFailure
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Batch, ClosedBy, Prediction, RunStates
from worker.core.tensors.buckets import Axis, Spot
from worker.core.tensors.stacking import Split, cut
from worker.state import KeyStates, StatefulStacker, layout_of

NOTHING: Any = None  # no partition is restored here


def stacker(**more: Any) -> StatefulStacker:
    return StatefulStacker(signature(**more), gives=SUMS, states=KeyStates(STATE, OffsetLedger(), NOTHING, NOTHING))


def stacked(by: StatefulStacker, *requests: Any) -> Batch:
    batch, refused = by.stack(requests, ClosedBy.SIZE)
    assert batch is not None
    assert not refused
    return batch


@pytest.mark.parametrize("shapes", [((3, 1), (2, 1)), ((2, 1), (3, 1)), ((2, 1), (2, 2))])
def test_outputs_of_other_rows_or_shapes_fail_the_run(shapes: tuple[tuple[int, ...], ...]) -> None:
    """No row can be matched to a request then."""
    by = stacker()

    found = by.split(stacked(by, request(0), request(1)), [np.zeros(shape, "<f4") for shape in shapes])

    assert isinstance(found, RunFailure)
    assert found.loses_rows is ((3, 1) in shapes)


def test_where_rows_are_padded_each_request_has_its_own_state() -> None:
    """The state is a copy, cut from the batch's outputs. The padded axis is found though inputs are left out."""
    whole = signature(spec("sum"), spec("x", dims=(None,)), outputs=(spec("next"), spec("y", dims=(None,))))
    whole = replace(whole, axes=(Axis("input x axis 1", (4,), {Spot(1, 0): 0}, (Spot(1, 0),)),))
    layout, left = layout_of(whole, {"sum": "next"}, 0.0, with_answer=False)
    by = StatefulStacker(left, gives=whole.outputs, states=KeyStates(layout, OffsetLedger(), NOTHING, NOTHING))
    requests = [request(n, tensors=[b"\0" * 4 * (n + 1)], shapes=((n + 1,),)) for n in range(2)]

    batch = stacked(by, *requests)
    found = by.split(batch, [np.array([[5.0], [6.0]], "<f4"), np.zeros((2, 4), "<f4")])

    assert isinstance(found, Split)
    states = [prediction.states for prediction in found.predicted]
    assert batch.feeds["x"].shape == (2, 4)
    assert [prediction.outputs[0].shape for prediction in found.predicted] == [(1, 1), (1, 2)]
    assert [state.arrays[0].tolist() for state in states if state is not None] == [[[5.0]], [[6.0]]]


@pytest.mark.parametrize("dims", [(), (1,), (2, 3)])
def test_a_step_begins_with_what_the_step_before_it_left(dims: tuple[int, ...]) -> None:
    """This holds for any shape of a state, also for one number per row without another axis."""
    whole = signature(spec("sum", dims=dims), spec("x"), outputs=(spec("next", dims=dims), spec("y")))
    layout, left = layout_of(whole, {"sum": "next"}, 0.0, with_answer=False)
    by = StatefulStacker(left, gives=whole.outputs, states=KeyStates(layout, OffsetLedger(), NOTHING, NOTHING))
    first, second = cut(request(0, rows=2), 1)
    assert first.reassembly is not None
    state = np.full((1, *dims), 5, "<f4")
    first.reassembly.collect(first, Prediction(first, [np.zeros((1, 1), "<f4")], 0, 1, RunStates([state])))

    batch = stacked(by, second)

    assert batch.states["sum"].tolist() == state.tolist()
