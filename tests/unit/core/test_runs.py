"""Records that travel together as a run, and how a run is taken apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.builders import P0, P1, record
from tests.fakes import MODEL
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Prediction, Reply, Request
from worker.core.runs import Run, predictions, run_of, unravel

REPLIES = [Reply("a"), Reply("b"), Reply("c")]


def run(*offsets: int, rows_each: int = 1) -> Run:
    """A run of partition 0; each record's value repeats its offset once per row."""
    records = [record(offset) for offset in offsets]
    values = [bytes([offset]) * rows_each for offset in offsets]
    replies = [REPLIES[offset % 3] for offset in offsets]
    return run_of(records, values, rows_each, ((1,),), replies, [10 + offset for offset in offsets], MODEL)


def tracked(ledger: OffsetLedger, request: Request) -> Request:
    last = request.records[-1] if isinstance(request, Run) else request.record
    count = len(request.records) if isinstance(request, Run) else 1
    request.place = ledger.track(last, request.rows, request.size, 1.0, count)
    return request


def offsets(requests: Sequence[Request]) -> list[int]:
    return [request.record.offset for request in requests]


def test_a_run_is_a_request_with_the_rows_of_all() -> None:
    """Code that counts rows or bytes, or joins tensors, need not know that it is a run."""
    three = run(4, 5, 7, rows_each=2)

    assert (three.record.offset, three.rows, three.size, three.rows_each) == (4, 6, 46, 2)
    assert b"".join(map(bytes, three.parts())) == bytes([4, 4, 5, 5, 7, 7])


def test_a_run_is_cut_between_records() -> None:
    """Both parts are runs with their own data; a part with all records is the run itself."""
    three = run(4, 5, 7, rows_each=2)

    first, rest = three.part(0, 2), three.part(2, 3)

    assert offsets([first, rest]) == [4, 7]
    assert (first.rows, first.size, first.parts()) == (4, 29, [bytes([4, 4]), bytes([5, 5])])
    assert (rest.rows, rest.size, rest.parts(), list(rest.replies)) == (2, 17, [bytes([7, 7])], [REPLIES[1]])
    assert three.part(0, 3) is three


def test_unravelled_each_record_has_a_place_where_the_runs_was() -> None:
    """Requests that are no runs stay unchanged."""
    ledger = OffsetLedger()
    before, three, behind = (tracked(ledger, one) for one in (run(1), run(2, 3, 5), run(6)))
    single = tracked(ledger, next(run(7).singles()))
    held = ledger.records, ledger.rows, ledger.size

    requests = unravel([three, single], ledger)

    assert offsets(requests) == [2, 3, 5, 7]
    assert requests[3] is single
    assert [request.reply for request in requests[:3]] == [REPLIES[2], REPLIES[0], REPLIES[2]]
    assert [request.tensors for request in requests[:3]] == [(bytes([2]),), (bytes([3]),), (bytes([5]),)]
    assert (ledger.records, ledger.rows, ledger.size) == held
    assert not any(isinstance(request, Run) for request in requests)
    line = single.place.line if single.place else None
    assert line is not None
    assert list(line.held) == [request.place for request in (before, *requests[:3], behind, single)]


def test_what_was_forgotten_is_unravelled_into_no_line() -> None:
    """Its partition was taken away meanwhile, so its answers are dropped."""
    ledger = OffsetLedger()
    two = tracked(ledger, run(0, 1))
    ledger.forget([P0])

    requests = unravel([two], ledger)

    assert offsets(requests) == [0, 1]
    assert (ledger.records, ledger.rows, ledger.size) == (0, 0, 0)


def test_a_prediction_for_a_run_is_one_for_each_record() -> None:
    """Each has its own rows of the shared outputs."""
    outputs = [np.arange(8)]
    two = run(3, 4, rows_each=2)

    first, second = predictions(Prediction(two, outputs, 2, 6))

    assert offsets([first.request, second.request]) == [3, 4]
    assert [one.outputs[0].tolist() for one in (first, second)] == [[2, 3], [4, 5]]


def test_a_run_counts_as_its_records_until_it_is_settled() -> None:
    """A commit goes past its last record only then."""
    ledger = OffsetLedger()
    place = tracked(ledger, run(2, 3, 5)).place
    other = ledger.track(record(0, partition=P1), 1, 1, 1.0)
    assert place is not None

    ledger.answer([(place, Prediction(run(2), []))])
    early = ledger.records, ledger.committable()
    ledger.settle([place])

    assert early == (4, {})
    assert (ledger.records, ledger.committable()) == (1, {P0: 6})
    assert other.records == 1


def test_a_prediction_for_one_record_is_itself() -> None:
    """A single record needs no taking apart."""
    alone = Prediction(next(run(3).singles()), [np.arange(1)])

    assert predictions(alone) == [alone]
