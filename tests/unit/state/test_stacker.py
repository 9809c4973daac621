"""States on their way into a batch, and out of the model's outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders import STATE
from tests.chunks import P0, batch, chunk, floats, signature, spec
from tests.fakes import CHANGELOG
from tests.unit.state.rig import NOTHING, Rig, chunk_of, keyed
from worker.core.chunk import Prediction, cut
from worker.core.failures import Code, RunFailure
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import ClosedBy, Record, StateUse
from worker.core.tensors.buckets import Axis, Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Split
from worker.state import KeyStates, StatefulStacker, layout_of
from worker.state.stacker import APPLIED, NO_STATE

SUMMING = signature(spec("sum"), spec("x"), outputs=(spec("y"), spec("next")))


def stacker(whole: Signature = SUMMING) -> StatefulStacker:
    layout, left = layout_of(whole, {"sum": "next"}, 0.0, with_answer=False)
    return StatefulStacker(left, gives=whole.outputs, states=KeyStates(layout, OffsetLedger(), NOTHING, NOTHING))


@pytest.mark.parametrize("shapes", [((3, 1), (2, 1)), ((2, 1), (3, 1)), ((2, 1), (2, 2))])
def test_outputs_of_other_rows_or_shapes_fail_the_run(shapes: tuple[tuple[int, ...], ...]) -> None:
    """No row can be matched to a request then."""
    by = stacker()

    found = by.split(batch(chunk(0, 1), by=by), [np.zeros(shape, "<f4") for shape in shapes])

    assert isinstance(found, RunFailure)
    assert found.loses_rows is ((3, 1) in shapes)


def test_where_rows_are_padded_each_request_has_its_own_state() -> None:
    """The state is not padded. The padded axis is found though inputs are left out."""
    whole = signature(spec("sum"), spec("x", dims=(None,)), outputs=(spec("next"), spec("y", dims=(None,))))
    whole = replace(whole, axes=(Axis("input x axis 1", (4,), {Spot(1, 0): 0}, (Spot(1, 0),)),))
    by = stacker(whole)
    ragged = chunk(0, 1, shapes=[((1,),), ((2,),)], tensors=[[floats(0), floats(1, 1)]])

    made = batch(ragged, by=by)
    found = by.split(made, [np.array([[5.0], [6.0]], "<f4"), np.zeros((2, 4), "<f4")])

    assert isinstance(found, Split)
    [(of, outputs, start, states)] = found.predicted
    assert made.feeds["x"].shape == (2, 4)
    assert (of, start, [output.shape for output in outputs]) == (ragged, 0, [(2, 4)])
    assert states is not None
    assert [array.tolist() for array in states] == [[[5.0], [6.0]]]


def test_where_nan_is_allowed_a_next_state_may_hold_it() -> None:
    """The operator said so for all that the model gives. Then no record is refused for it."""
    by = replace(stacker(), refuse_non_finite_output=False)
    asked = chunk(0, 1)

    found = by.split(batch(asked, by=by), [np.array([[1], [2]], "<f4"), np.array([[np.nan], [4]], "<f4")])

    assert isinstance(found, Split)
    [(of, _, _, states)] = found.predicted
    assert (of, found.refused) == (asked, [])
    assert states is not None
    np.testing.assert_array_equal(states[0], [[np.nan], [4]])


@pytest.mark.parametrize("dims", [(), (1,), (2, 3)])
def test_a_step_begins_with_what_the_step_before_it_left(dims: tuple[int, ...]) -> None:
    """This holds for any shape of a state, also for one number per row without another axis, and between neighbours."""
    whole = signature(spec("sum", dims=dims), spec("x"), outputs=(spec("next", dims=dims), spec("y")))
    by = stacker(whole)
    first, second = cut(chunk(0, rows=2), 1)
    assert first.reassembly is not None
    state = np.full((1, *dims), 5, "<f4")
    first.reassembly.collect(first, Prediction(first, [np.zeros((1, 1), "<f4")], 0, [state]))

    made = batch(chunk(1, 2), second, chunk(3), by=by)

    assert made.states["sum"].tolist() == [*[np.zeros(dims).tolist()] * 2, *state.tolist(), np.zeros(dims).tolist()]


class Silent(KeyStates):
    """States whose store says which requests were answered."""

    settles_applied = True

    def applied_before(self, records: Any) -> None:
        told.extend(record.offset for record in records)


told: list[int] = []


def unsure(*ahead: Record, settles: bool = False) -> StatefulStacker:
    """A stacker whose keys' states include these records, and refuse keys without a state."""
    ledger = OffsetLedger()
    states = (Silent if settles else KeyStates)(STATE, ledger, NOTHING, NOTHING, topic=CHANGELOG)
    rig = Rig(states=states, ledger=ledger, max_rows=8, refuse_missing=True)
    rig.take(*[keyed(n, b"%d" % n) for n in range(5)], use=StateUse.RESET)
    rig.run()
    states._ahead[P0] = {record.key or b"": record.offset for record in ahead}
    told.clear()
    return rig.stacker


ten = [keyed(10 + n, b"%d" % n) for n in range(5)]


@pytest.mark.parametrize("at", [[0], [2], [4], [0, 1], [0, 2, 4], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("settles", [False, True])
def test_a_record_that_its_state_includes_is_refused_and_its_neighbours_run(at: list[int], *, settles: bool) -> None:
    """One that was surely answered gets no answer again, and is counted."""
    by = unsure(*[ten[n] for n in at], settles=settles)

    made, refused = by.stack([chunk_of(ten)], ClosedBy.SIZE)

    ran = [] if made is None else [record.offset for part in made.chunks for record in part.records]
    assert ran == [10 + n for n in range(5) if n not in at]
    assert made is None or made.rows == len(ran)
    found = [(why.record.offset, why.code, why.message, why.is_silent) for _, _, why in refused]
    assert found == [(10 + n, Code.INTERNAL, APPLIED, settles) for n in at]
    assert told == ([10 + n for n in at] if settles else [])


def test_a_reset_needs_no_state_before_it() -> None:
    """One that was surely answered is still not run."""
    chunks = [replace(chunk_of(ten), state=StateUse.RESET)]

    [made, refused], [again, silent] = [unsure(ten[1], settles=s).stack(chunks, ClosedBy.SIZE) for s in (False, True)]

    assert made is not None
    assert again is not None
    assert (made.rows, refused, again.rows) == (5, [], 4)
    assert [(why.record.offset, why.is_silent) for _, _, why in silent] == [(11, True)]


def test_a_record_is_refused_for_one_reason() -> None:
    """A key that was forgotten by a later request has no state, too. Later rows of a sequence are not asked."""
    gone, first = keyed(15, b"gone"), keyed(16, b"new", 1, 2)
    pieces = cut(chunk_of([first]), 1)
    assert pieces[0].reassembly is not None

    _, refused = unsure(gone).stack([chunk_of([*ten, gone]), pieces[0]], ClosedBy.SIZE)
    pieces[0].reassembly.carried = [np.ones((1, 1), "<f4")]
    made, others = unsure(first).stack([pieces[1]], ClosedBy.SIZE)

    assert [(why.record.offset, why.message) for _, _, why in refused] == [(15, NO_STATE), (16, NO_STATE)]
    assert made is not None
    assert not others
