"""Every request gets one answer: results, rejections, and the search for the bad request."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tests.builders import (
    CONDUCT,
    FAULT,
    FAULTY,
    LARGE,
    NONSENSE,
    POISON,
    POLICY,
    SHORT,
    World,
    names,
    rows_model,
    sources,
)
from tests.chunks import P0, floats, offsets, record, signature
from tests.fakes import MODEL, Model, RowCodec, TransactionFate
from worker.core.failures import Code, ModelBroken, RowFault, RunFailure, TooManyRejections
from worker.core.records import Array, ModelKey, Record
from worker.core.tensors.stacking import Stacker
from worker.loop.outcomes import LONG, PATIENCE


def world_of(**fields: object) -> World:
    return World(**fields).start()  # type: ignore[arg-type]


def with_memory_for(rows: int) -> Model:
    """A model that runs out of memory with more rows."""

    def model(feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        if len(feeds["x"]) > rows:
            return RunFailure("no memory", Code.RESOURCE_EXHAUSTED)
        return rows_model(feeds)

    return model


def test_a_record_that_is_no_request_is_answered_without_the_model() -> None:
    """A bad record gets its error in order; its neighbours get their results."""
    world = world_of()
    world.broker.append(record(0, 1), record(1, value=b"odd"), record(2, value=b""), record(3, 3))

    world.turn_for(0.1)

    assert world.answered() == names(0, 1, 2, 3)
    assert world.answered("error") == names(1, 2)
    assert world.lanes.probes == 0
    assert [r.record.offset for r in world.events.rejections] == [1, 2]


def test_a_record_that_needs_no_answer_is_passed_over_and_counted() -> None:
    """A record of another kind is committed as its neighbours are, and is no rejection."""
    world = world_of()
    world.broker.append(record(0, 1), record(1, value=b"skip"), record(2, 3))

    world.turn_for(0.1)

    assert world.answered() == names(0, 2)
    assert world.events.counted["unanswered"] == 1
    assert world.events.rejections == []


def test_an_error_that_the_model_caused_is_dead_lettered_as_it_came() -> None:
    """The original goes to the dead letters once, and an answer to its requester."""
    world = world_of()
    world.broker.append(record(0, POISON))

    world.turn_for(0.1)

    letters = [m for m in world.broker.answers if m.topic == "dead-letters"]
    assert [m.value for m in letters] == [floats(POISON)]
    assert sources(letters) == names(0)


def test_a_request_larger_than_a_batch_is_answered_as_one() -> None:
    """Its pieces run apart and become one answer with all its rows."""
    world = world_of()
    world.broker.append(record(0, *range(10)), record(1, 99))

    world.turn_for(0.1)

    assert world.answered() == names(0, 1)
    assert world.broker.answers[0].value == floats(*range(0, 20, 2))


@pytest.mark.parametrize("bad", [POISON, FAULTY, SHORT, NONSENSE, math.nan])
@pytest.mark.parametrize("memory", [4, 2], ids=["pieces", "pieces-of-pieces"])
def test_a_bad_one_among_the_pieces_makes_one_error(bad: float, memory: int) -> None:
    """If one piece is rejected, the others are dropped and one error is sent. A piece may be cut again."""
    world = world_of(model=with_memory_for(memory))
    values = [float(at) for at in range(10)]
    values[5] = bad
    world.broker.append(record(0, *values), record(1, 99))

    world.turn_for(0.2)

    assert world.answered() == names(0, 1)
    assert world.answered("error") == names(0)


def tokens(feeds: Mapping[str, Array]) -> Sequence[Array]:
    """A model that repeats each row as often as its number says, like one that turns a text into tokens."""
    return (np.repeat(feeds["x"], feeds["x"][:, 0].astype(int), axis=0),)


def test_rows_that_are_no_rows_are_nobodys_answers() -> None:
    """Once a run loses rows, each row runs alone, even if a later half has the right number by chance.

    Afterwards only rows with one token get a result, their own; this includes batches that were already out.
    """
    world = world_of(model=tokens, conduct=dataclasses.replace(CONDUCT, lanes=2))
    world.broker.append(*[record(at, value) for at, value in enumerate([3, 1, 2, 0, 2, 0, 1, 1])])
    world.turn_for(0.5)
    world.broker.append(record(8, 2, 0), record(9, 2), record(10, 0), record(11, 1, 1), record(12, 1))
    world.turn_for(0.5)

    assert world.answered() == names(*range(13))
    assert world.answered("ok") == names(1, 6, 7, 11, 12)
    assert [len(offsets(batch.chunks)) for batch in world.lanes.ran[-7:]] == [1] * 7
    assert world.events.lost_rows == ["output y: 4 rows went in, shape (6, 1) came out"]
    assert world.broker.committed == {P0: 13}


def test_a_lone_bad_request_waits_until_the_device_has_proved_itself() -> None:
    """Without a recent success, the warm-up batch runs before a request is blamed."""
    world = world_of()
    world.broker.append(record(0, POISON))

    world.turn_for(0.1)

    assert world.events.probes == [None]
    assert world.answered("error") == names(0)


def test_a_success_proves_the_device_without_a_probe() -> None:
    """While other batches succeed, no probe is needed."""
    world = world_of()
    world.broker.append(*[record(at, POISON if at == 0 else at) for at in range(8)])

    world.turn_for(0.2)

    assert world.lanes.probes == 0
    assert world.answered("error") == names(0)


def test_rows_that_fail_alone_cost_no_run_and_no_proof_of_the_device() -> None:
    """Their records are refused at once, and the others have their results of the one run."""
    world = world_of()
    world.broker.append(record(0), record(1, FAULTY), record(2, 2.0, FAULTY), record(3))

    world.turn_for(0.1)

    assert [offsets(batch.chunks) for batch in world.lanes.ran] == [[0, 1, 2], [3]]
    assert world.answered() == names(0, 1, 2, 3)
    assert world.answered("error") == names(1, 2)
    assert {(one.code, one.message) for one in world.events.rejections} == {(Code.INVALID_ARGUMENT, FAULT)}
    assert world.events.counted["failed"] == 0  # the operator hears of rejections, and of no failed inference
    assert world.lanes.probes == 0


def test_rows_that_were_left_run_behind_others() -> None:
    """Their neighbours are answered meanwhile, and each is answered once."""
    world = world_of(order="none")
    world.broker.append(record(0, LARGE), record(1), record(2, LARGE), record(3, FAULTY))
    world.broker.append(*[record(at) for at in range(4, 8)])

    world.turn_for(0.1)

    assert [offsets(batch.chunks) for batch in world.lanes.ran] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 2], [2]]
    assert [batch.gives_way for batch in world.lanes.ran] == [False, False, True, True]
    assert sorted(world.answered()) == names(*range(8))
    assert world.answered("error") == names(3)
    assert world.events.counted["failed"] == 0


def test_a_record_of_which_one_row_is_always_left_is_cut() -> None:
    """A run without a single answer may not be repeated for ever."""
    world = world_of()
    world.broker.append(record(0, 1.0, LARGE), record(1))

    world.turn_for(0.1)

    assert world.answered("ok") == names(0, 1)
    assert len(world.lanes.ran) == 4


@pytest.mark.parametrize(("seconds", "before"), [(0.5 * LONG, 4), (2 * LONG, 2)])
def test_while_a_record_is_sought_whose_runs_take_long_others_go_between(seconds: float, before: int) -> None:
    """The halves of a batch that failed at once go first."""
    world = world_of(order="none", policy=dataclasses.replace(POLICY, linger=0.0))
    world.lanes.seconds = lambda: seconds
    world.broker.append(*[record(at, POISON if at == 2 else at) for at in range(4)])
    world.turn_for(0.01)
    world.broker.append(*[record(at) for at in range(4, 12)])

    world.turn_for(2.0)

    ran = [offsets(batch.chunks) for batch in world.lanes.ran]
    assert (ran[:2], ran.index([8, 9, 10, 11])) == ([[0, 1, 2, 3], [4, 5, 6, 7]], before)
    assert world.answered("error") == names(2)
    assert sorted(world.answered()) == sorted(names(*range(12)))


def test_a_batch_of_nothing_but_faults_leaves_nothing_to_run() -> None:
    """Its records are answered. Any number of such batches casts no doubt on the device."""
    world = world_of(policy=dataclasses.replace(POLICY, max_rows=2))
    world.broker.append(*[record(at, FAULTY) for at in range(2 * PATIENCE)])

    world.turn_for(0.1)

    assert world.answered("error") == names(*range(2 * PATIENCE))
    assert sum(batch.rows for batch in world.lanes.ran) == 2 * PATIENCE
    assert world.lanes.probes == 0


@pytest.mark.parametrize("row", [0, 99], ids=["the first", "none of the batch"])
def test_a_host_that_always_finds_faults_does_not_run_for_ever(row: int) -> None:
    """Each run has fewer records than the one before; a fault of no row of the batch is a failure of the whole."""
    failure = RunFailure("faulty", faults={row: RowFault(Code.INTERNAL, "no")})
    world = world_of(model=lambda _: failure)
    world.broker.append(*[record(at) for at in range(4)])

    world.turn_for(0.5)

    assert world.answered("error") == names(0, 1, 2, 3)
    assert len(world.lanes.ran) == world.events.counted["failed"] <= 7


def test_many_failures_in_a_row_make_the_device_be_asked_while_lanes_run() -> None:
    """A stream of poison alone is answered, with a probe after every `PATIENCE` failures."""
    world = world_of(policy=dataclasses.replace(POLICY, max_rows=1))
    world.broker.append(*[record(at, POISON) for at in range(2 * PATIENCE)])

    world.turn_for(1.0)

    assert world.answered("error") == names(*range(2 * PATIENCE))
    assert len(world.events.probes) >= 2


@pytest.mark.parametrize("records", [1, 3, 50])
def test_a_dead_device_stops_the_worker_with_its_requests_unanswered(records: int) -> None:
    """When the warm-up batch fails too, no request is to blame: none is answered, none is committed."""
    world = world_of()
    world.broker.append(record(0, 1))
    world.turn_for(0.5)
    world.broker.append(*[record(1 + at, 5) for at in range(records)])
    world.lanes.is_broken = True

    with pytest.raises(ModelBroken, match="the device is gone"):
        world.turn_for(5.0)

    assert world.answered() == names(0)
    assert world.broker.committed == {P0: 1}
    assert world.events.probes == ["the device is gone"]


def serve_another(world: World) -> ModelKey:
    """Serve another version of the model in addition to the first."""
    other = MODEL._replace(version="2")
    world.policies[other] = world.batcher._policies[other] = world.policy
    world.stackers[other] = Stacker(dataclasses.replace(signature(), version="2"))
    return other


def of_both(records: int) -> list[Record]:
    """Records with and without a request for version 2, in turn."""
    asked = [record(at) for at in range(records)]
    return [one._replace(headers=(("version", b"2"),)) if one.offset % 2 else one for one in asked]


def test_two_models_share_the_lanes_and_no_batch() -> None:
    """A second model is just one more entry: each request is answered in order, by the model that it asks for."""
    world = world_of()
    other = serve_another(world)
    world.broker.append(*of_both(12))

    world.turn_for(0.2)

    assert world.answered("ok") == names(*range(12))
    assert {batch.model for batch in world.lanes.ran} == {MODEL, other}
    assert all(one.model == batch.model for batch in world.lanes.ran for one in batch.chunks)
    assert world.broker.committed == {P0: 12}


def test_a_device_that_answers_only_nonsense_is_asked_too() -> None:
    """Non-finite answers for all requests do not prove that the device works."""
    world = world_of(model=lambda feeds: [np.full_like(feeds["x"], np.nan)])
    world.broker.append(*[record(at) for at in range(4)])

    world.turn_for(0.1)

    assert world.events.probes == [None]
    assert world.answered("error") == names(0, 1, 2, 3)


@pytest.mark.parametrize("exactly_once", [False, True])
def test_answers_refused_when_they_are_written_count_as_rejections(exactly_once: bool) -> None:  # noqa: FBT001  # a parameter
    """A result too large for its topic is an error for its requester, and counts for the operator's limit."""
    world = world_of(exactly_once=exactly_once, rejection_limit=3)
    large = RowCodec.TOO_LARGE / 2  # the model doubles it
    world.broker.append(*[record(at, large) for at in (0, 1)], record(2, 1.0), *[record(at, large) for at in (3, 4)])
    world.turn_for(1.0)
    world.broker.append(record(5, large))

    with pytest.raises(TooManyRejections, match="3 records in a row were rejected, the last one requests/0/5"):
        world.turn_for(1.0)


def test_rejections_that_wait_for_a_transaction_count_once_they_are_in_one() -> None:
    """While a transaction ends nothing is written; the limit is reached when the next one holds the rejections."""
    world = world_of(exactly_once=True, rejection_limit=3)
    fates = [TransactionFate(heard_after=0.5)]
    world.transactions.fate = lambda: fates.pop() if fates else TransactionFate()
    world.broker.append(record(0, 1.0))
    world.turn_for(0.3)
    world.broker.append(*[record(at, value=b"odd") for at in (1, 2, 3)])
    world.turn_for(0.1)

    with pytest.raises(TooManyRejections, match="3 records in a row"):
        world.turn_for(1.0)


@pytest.mark.parametrize("bad", [{"value": b"odd"}, {"value": floats(NONSENSE)}], ids=["undecodable", "nonsense"])
@pytest.mark.parametrize("together", [1, 64])
def test_a_result_ends_a_row_of_rejections(bad: dict[str, bytes], together: int) -> None:
    """Only a row without results counts, in the order of answers: a poll or a batch knows its rejections first."""
    world = world_of(
        rejection_limit=3,
        policy=dataclasses.replace(POLICY, max_rows=together, linger=0.0),
        chunk=together,
    )
    world.broker.append(*[record(at) if at % 3 == 2 else record(at, **bad) for at in range(36)])  # type: ignore[arg-type]

    world.turn_for(1.0)

    assert world.answered() == names(*range(36))
    assert len(world.answered("error")) == 24


def test_rejections_that_a_transaction_takes_back_are_not_counted_twice() -> None:
    """They are read again, but count once."""
    world = world_of(exactly_once=True, rejection_limit=3)
    fates = [TransactionFate(is_committed=False, failure="a broker went away")] * 2
    world.transactions.fate = lambda: fates.pop() if fates else TransactionFate()
    world.broker.append(*[record(at, value=b"odd") for at in range(2)])

    world.turn_for(3.0)

    assert world.answered("error") == names(0, 1)
    assert not fates


def test_a_request_whose_pieces_do_not_fit_together_is_refused() -> None:
    """The length of its output depends on the data, and a request larger than a batch runs in parts."""
    world = world_of(model=lambda feeds: [np.zeros((len(feeds["x"]), int(feeds["x"].max())), np.float32)])
    world.broker.append(record(0, *[1.0] * POLICY.max_rows, 3.0), record(1, 2.0))

    world.turn_for(0.5)

    assert world.answered("error") == names(0)
    assert world.answered("ok") == names(1)
    assert [rejection.code for rejection in world.events.rejections] == [Code.INTERNAL]


def test_a_device_without_memory_for_a_batch_gets_smaller_ones() -> None:
    """No request gets an error for it, and later requests do not run at the old size."""
    world = world_of(model=with_memory_for(1))
    world.broker.append(*[record(at) for at in range(4)])
    world.turn_for(0.1)
    failed = world.events.counted["failed"]

    world.broker.append(*[record(at) for at in range(4, 12)])
    world.turn_for(0.1)

    assert world.answered() == names(*range(12))
    assert not world.answered("error")
    assert failed == 3
    assert world.events.counted["failed"] == failed


def test_a_model_of_a_fixed_number_of_rows_keeps_its_batches_where_memory_is_short() -> None:
    """Each run takes equal memory: smaller batches would mean more runs, and save no memory."""
    is_short = True

    def short_for_a_while(feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        return RunFailure("no memory", Code.RESOURCE_EXHAUSTED) if is_short and len(feeds["x"]) > 1 else [feeds["x"]]

    world = world_of(model=short_for_a_while, policy=dataclasses.replace(POLICY, is_fixed=True))
    world.broker.append(*[record(at) for at in range(4)])
    world.turn_for(0.1)
    is_short = False
    runs = world.events.counted["ran"]

    world.broker.append(*[record(at) for at in range(4, 12)])
    world.turn_for(0.1)

    assert world.answered() == names(*range(12))
    assert world.events.counted["ran"] - runs == 2


def test_what_a_failure_quotes_of_a_request_is_told_to_its_publisher_alone() -> None:
    """The log hears of the failure without the value, which is private."""

    def picky(feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        return RunFailure("idx=9999 is no index", logged="idx=… is no index") if 9 in feeds["x"] else [feeds["x"]]

    world = world_of(model=picky)
    world.broker.append(record(0, 1), record(1, 9))

    world.turn_for(0.1)

    assert set(world.events.failures) == {"idx=… is no index"}
    (rejection,) = world.events.rejections
    assert rejection.message.endswith("idx=9999 is no index")


def test_a_row_for_which_there_is_no_memory_at_all_is_answered_so() -> None:
    """Nothing smaller can run, and the device runs its warm-up batch, so the request is too large."""
    world = world_of(
        model=lambda feeds: RunFailure("no memory", Code.RESOURCE_EXHAUSTED) if feeds["x"][0] else [feeds["x"]]
    )
    world.broker.append(record(0, 1), record(1, 0))

    world.turn_for(0.2)

    assert world.answered("error") == names(0)
    assert world.answered() == names(0, 1)
