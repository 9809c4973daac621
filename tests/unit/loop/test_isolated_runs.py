"""Records that end the process: they are set aside, run alone, and marked as poison."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from unittest.mock import Mock

import pytest

from tests.builders import POISON, World, sources
from tests.chunks import P0, P1, floats, record
from tests.fakes import Broker, Clock, CommitFate, TransactionFate
from worker.core.chunk import Reading
from worker.core.failures import Code, DeadlineMissed, KafkaFatal
from worker.core.records import Partition, Record
from worker.loop.admission import MOST_BYTES_POSTPONED, MOST_POSTPONED
from worker.loop.quarantine import WITHDRAW_TIMEOUT
from worker.loop.suspects import MOST_WAITING
from worker.loop.worker import REPORT_WAIT

MOST_AT_ONCE = 20
both_guarantees = pytest.mark.parametrize("exactly_once", [False, True], ids=["at_least_once", "exactly_once"])


def suspect_world(*, exactly_once: bool = False, poison: int | None = None, records: int = 3) -> World:
    """A worker whose partition P0 ended the process three times before; P1 did not."""
    broker = Broker()
    broker.append(*[record(at) for at in range(records)], *[record(at, partition=P1) for at in range(records)])
    broker.committed[P0] = poison or 0
    broker.attempts[P0] = 3, poison is not None
    world = World(clock=Clock(), broker=broker, exactly_once=exactly_once, commit_interval=0.05).start(P0, P1)
    world.lanes.seconds = lambda: 0.02
    return world


def runs_with(world: World, partition: Partition) -> list[list[str]]:
    """The batches that held a record of this partition."""
    batches = [[record.source for chunk in batch.chunks for record in chunk.records] for batch in world.lanes.ran]
    return [batch for batch in batches if any(source.startswith(f"{partition}/") for source in batch)]


@both_guarantees
def test_a_suspects_records_run_alone(*, exactly_once: bool) -> None:
    """Each has a batch of its own, in order, and all are answered."""
    world = suspect_world(exactly_once=exactly_once)

    world.turn_for(2.0)

    assert runs_with(world, P0) == [["requests/0/0"], ["requests/0/1"], ["requests/0/2"]]
    assert sorted(world.answered("ok")) == [f"requests/{p}/{at}" for p in (0, 1) for at in range(3)]
    assert world.broker.committed == {P0: 3, P1: 3}
    assert world.broker.attempts == {}


@both_guarantees
def test_nothing_else_is_in_the_lanes_beside_an_isolated_run(*, exactly_once: bool) -> None:
    """If the process dies then, this record was the cause."""
    world = suspect_world(exactly_once=exactly_once, records=40)
    world.broker.committed[P0] = 37

    seen: list[tuple[bool, int]] = []
    for _ in range(3000):
        world.turn()
        run = world.quarantine.current
        is_running = run is not None and run.is_begun and not world.ledger.is_done(run.place)
        seen.append((is_running, world.lanes.in_flight))

    assert {in_flight for is_running, in_flight in seen if is_running} == {0, 1}
    assert len(runs_with(world, P0)) == 3
    assert world.broker.committed == {P0: 40, P1: 40}


def test_what_comes_during_a_long_isolated_run_is_bounded() -> None:
    """The brokers of the answers may be away for long, while requests still come."""
    world = suspect_world(records=1)
    world.broker.append(*[record(at, partition=P1) for at in range(1, 1000)])
    world.sink.delay = lambda _: 8.0

    most = 0
    for _ in range(1200):
        world.turn()
        most = max(most, len(world.admission._postponed))
    assert MOST_POSTPONED <= most <= MOST_POSTPONED + MOST_AT_ONCE
    assert world.events.pauses[:1] == [True]

    world.sink.delay = lambda _: 0.0
    world.turn_for(20.0)
    assert world.events.pauses[1] is False
    assert world.broker.committed == {P0: 1, P1: 1000}


def test_what_comes_during_a_long_isolated_run_is_bounded_in_bytes() -> None:
    """A few large records need as much memory as many small ones."""
    world = suspect_world(records=1)
    large = bytes(MOST_BYTES_POSTPONED // 8 - 1)  # not a request, so it is rejected quickly
    world.broker.append(*[record(at, partition=P1, value=large) for at in range(1, 40)])
    world.sink.delay = lambda _: 8.0

    most = 0
    for _ in range(1200):
        world.turn()
        most = max(most, sum(len(one.value or b"") for one in world.admission._postponed))

    assert MOST_BYTES_POSTPONED <= most <= MOST_BYTES_POSTPONED + len(large)
    assert world.events.pauses[:1] == [True]


@both_guarantees
def test_the_group_knows_of_an_isolated_run_before_it_begins(*, exactly_once: bool) -> None:
    """While a record runs alone, the group's offset is its own, and the note says that it runs alone."""
    world = suspect_world(exactly_once=exactly_once)

    notes = set()
    for _ in range(600):
        world.turn()
        if world.lanes.in_flight and (run := world.quarantine.current) is not None and run.is_begun:
            notes.add((run.record.offset, world.broker.committed[P0], world.broker.attempts[P0]))

    assert notes == {(at, at, (4, True)) for at in range(3)}


@both_guarantees
def test_a_poison_record_is_answered_and_not_run(*, exactly_once: bool) -> None:
    """It gets INTERNAL and a dead letter; the records behind it still run one by one."""
    world = suspect_world(exactly_once=exactly_once, poison=1)

    world.turn_for(2.0)

    assert runs_with(world, P0) == [["requests/0/2"]]
    assert world.answered("error") == ["requests/0/1"]
    assert [(r.record.source, r.code) for r in world.events.rejections] == [("requests/0/1", Code.INTERNAL)]
    assert [m.value for m in world.broker.answers if m.topic == "dead-letters"] == [floats(1)]
    assert world.broker.committed == {P0: 3, P1: 3}


@both_guarantees
def test_a_suspects_bad_record_is_rejected_as_ever(*, exactly_once: bool) -> None:
    """It may be undecodable or refused by the model: it gets its own error, and holds up no other."""
    world = suspect_world(exactly_once=exactly_once, records=0)
    world.broker.append(record(0, value=b"odd"), record(1, POISON), record(2), record(3, value=b"skip"), record(4))

    world.turn_for(2.0)

    assert world.answered("error") == ["requests/0/0", "requests/0/1"]
    assert world.answered("ok") == ["requests/0/2", "requests/0/4"]
    assert world.broker.committed[P0] == 5


@both_guarantees
def test_what_comes_after_the_suspicion_shares_batches_again(*, exactly_once: bool) -> None:
    """Records that came after the process died are not suspect."""
    world = suspect_world(exactly_once=exactly_once)
    world.turn_for(2.0)

    world.broker.append(*[record(at) for at in range(3, 7)])
    world.turn_for(1.0)

    assert runs_with(world, P0)[3:] == [[f"requests/0/{at}" for at in range(3, 7)]]
    assert not world.quarantine.has_suspects


@both_guarantees
def test_a_large_request_runs_alone_as_a_whole(*, exactly_once: bool) -> None:
    """A request with more rows than a batch runs in pieces, with nothing between them, and is answered once."""
    world = suspect_world(exactly_once=exactly_once, records=0)
    world.broker.append(record(0, *range(9)), record(1))

    world.turn_for(2.0)

    assert [batch.rows for batch in world.lanes.ran] == [4, 4, 1, 1]
    assert world.answered("ok") == ["requests/0/0", "requests/0/1"]


@both_guarantees
def test_many_records_of_a_suspect_stay_with_kafka(*, exactly_once: bool) -> None:
    """A suspect with a long backlog does not fill the bounds that all partitions share."""
    world = suspect_world(exactly_once=exactly_once, records=0)
    # All records that may be in flight are suspect. A backlog of 90 is settled so fast that never more than `most_here`
    # are here, withheld or not. With twice `most_here`, 117 are here when none is withheld.
    most_here = MOST_WAITING + MOST_AT_ONCE
    backlog = 2 * most_here
    bounds = dataclasses.replace(world.bounds, records=backlog)
    world = dataclasses.replace(world, chunk=MOST_AT_ONCE, bounds=bounds).start(P0, P1)
    world.broker.append(*[record(at) for at in range(backlog)])
    world.lanes.seconds = lambda: 0.001

    most = 0
    while world.broker.committed.get(P0, 0) < backlog:
        world.turn()
        most = max(most, world.ledger.records)
        assert world.clock.now < 1100.0

    assert MOST_WAITING <= most <= most_here
    assert world.source.withheld == set()
    assert len(world.answered("ok")) == backlog


@both_guarantees
def test_a_suspect_that_leaves_is_another_ones_suspect(*, exactly_once: bool) -> None:
    """Records that wait to run alone stay unanswered, and the next owner finds the partition suspect."""
    world = suspect_world(exactly_once=exactly_once)
    world.turn_until(lambda: world.broker.committed[P0])

    world.source.revoke(P0)
    world.turn_for(1.0)

    assert world.quarantine.current is None
    assert not world.quarantine.has_suspects
    answered = world.answered()
    assert [source for source in answered if source.startswith("requests/1")] == [f"requests/1/{n}" for n in range(3)]
    assert [source for source in answered if source.startswith("requests/0")] == ["requests/0/0"]
    assert world.broker.committed[P0] == 1


@both_guarantees
def test_a_suspect_lost_in_an_isolated_run_disturbs_no_other(*, exactly_once: bool) -> None:
    """The running record finds no line when it ends; the other partitions go on."""
    world = suspect_world(exactly_once=exactly_once)
    world.lanes.seconds = lambda: 0.5
    while not world.lanes.in_flight or world.quarantine.current is None or not world.quarantine.current.is_begun:
        world.turn()

    world.source.lose(P0)
    world.turn_for(3.0)

    assert [a for a in world.answered() if a.startswith("requests/0")] == []
    assert world.broker.committed[P1] == 3


def test_an_isolated_run_that_is_taken_back_begins_again() -> None:
    """A failed transaction leaves nothing: the record is read again, run again, and answered once."""
    world = suspect_world(exactly_once=True)
    fates = iter([TransactionFate(is_committed=False, failure="no")] * 2)
    world.transactions.fate = lambda: next(fates, TransactionFate())

    world.turn_for(3.0)

    assert world.events.counted["rewound"] == 2
    assert sorted(world.answered("ok")) == [f"requests/{p}/{at}" for p in (0, 1) for at in range(3)]
    assert all(len(batch) == 1 for batch in runs_with(world, P0))


@both_guarantees
def test_a_drain_ends_the_isolated_run_under_way(*, exactly_once: bool) -> None:
    """Records that were taken are answered and committed before the worker leaves."""
    world = suspect_world(exactly_once=exactly_once)
    world.turn(3)
    world.signals.stop_asked = True

    world.worker.run()

    assert world.ledger.records == 0
    assert world.broker.committed[P0] == len([a for a in world.answered() if a.startswith("requests/0")])


@both_guarantees
def test_nothing_is_decoded_beside_an_isolated_run(*, exactly_once: bool) -> None:
    """A record that ends the process while it is decoded must not mark another one as poison."""
    world = suspect_world(exactly_once=exactly_once, records=0)
    world.broker.append(*[record(at) for at in range(5)], *[record(at, partition=P1) for at in range(40)])
    decoded: list[tuple[str, str | None]] = []
    read = world.codec.read

    def watched(taken: Sequence[Record]) -> Reading:
        run = world.quarantine.current
        alone = run.record.source if run is not None and run.is_called else None
        decoded.extend((record.source, alone) for record in taken)
        return read(taken)

    world.codec.read = watched  # type: ignore[assignment, method-assign]

    world.turn_for(5.0)

    assert [source for source, alone in decoded if alone not in (None, source)] == []
    assert len(decoded) == 45
    assert len(world.answered("ok")) == 45


def test_what_is_postponed_and_taken_away_is_not_answered() -> None:
    """A record that came during an isolated run leaves with its partition."""
    world = suspect_world(records=1)
    world.lanes.seconds = lambda: 0.5
    world.turn_until(lambda: world.quarantine.is_exclusive)
    world.broker.append(record(1, partition=P1), record(2, partition=P1))
    world.turn(5)

    world.source.lose(P1)
    world.turn_for(3.0)

    assert world.answered() == ["requests/0/0"]


@both_guarantees
@pytest.mark.parametrize("ending", ["revoke", "drain"])
def test_an_isolated_run_that_is_broken_off_marks_no_record(*, exactly_once: bool, ending: str) -> None:
    """An inference that outlasts a revoke or a drain has not ended the process: the next owner tries it again."""
    world = suspect_world(exactly_once=exactly_once)
    world.lanes.seconds = lambda: 1000.0
    world.turn_until(lambda: world.lanes.in_flight)
    assert world.broker.attempts[P0] == (4, True)

    if ending == "revoke":
        world.source.revoke(P0)
        world.turn_for(1.0)
    else:
        world.signals.stop_asked = True
        with pytest.raises(DeadlineMissed):
            world.worker.run()

    assert world.broker.attempts[P0] == (4, False)
    assert world.broker.committed[P0] == 0


@both_guarantees
def test_a_run_broken_off_by_a_revoke_that_ends_the_worker_marks_no_record(
    monkeypatch: pytest.MonkeyPatch, *, exactly_once: bool
) -> None:
    """A producer that is fenced while partitions leave ends the process; the record under way is not the cause."""
    world = suspect_world(exactly_once=exactly_once)
    world.lanes.seconds = lambda: 1000.0
    world.turn_until(lambda: world.lanes.in_flight)
    monkeypatch.setattr(world.delivery, "revoke", Mock(side_effect=KafkaFatal("another process has our id")))

    world.source.revoke(P0)
    with pytest.raises(KafkaFatal):
        world.turn_for(1.0)

    assert world.broker.attempts[P0] == (4, False)


def test_a_note_is_kept_where_the_transaction_may_have_been_committed() -> None:
    """The client could not tell the end. It was committed, and a commit of our own would undo its offset."""
    world = suspect_world(exactly_once=True, records=2)
    fates = iter([TransactionFate(is_committed=True, failure="the coordinator moved")])
    world.turn_until(lambda: world.quarantine.is_exclusive)
    world.transactions.fate = lambda: next(fates, TransactionFate())

    world.turn_for(5.0)

    assert world.answered().count("requests/0/0") == 1
    assert world.broker.committed == {P0: 2, P1: 2}


def test_what_was_postponed_goes_before_what_comes_in_the_poll_that_ends_the_run() -> None:
    """The isolated run's partition leaves in a poll that also brings records of another partition."""
    world = suspect_world(records=1)
    world.lanes.seconds = lambda: 0.3
    world.turn_until(lambda: world.quarantine.is_exclusive)
    world.broker.append(record(1, partition=P1), record(2, partition=P1))
    world.turn_until(lambda: len(world.admission._postponed) >= 2)

    world.broker.append(record(3, partition=P1))
    world.source.revoke(P0)
    world.turn_for(2.0)

    answered = [name for name in world.answered() if name.startswith("requests/1/")]
    assert answered == [f"requests/1/{at}" for at in range(4)]
    assert world.broker.committed[P1] == 4


def test_an_end_waits_a_while_until_the_group_has_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """No later poll would hear the result. The wait is bounded, since the group itself may be broken."""
    world = suspect_world(records=1)
    world.lanes.seconds = lambda: 1000.0
    clear_note = Mock()
    monkeypatch.setattr(world.source, "clear_note", clear_note)
    world.turn_until(lambda: world.lanes.in_flight)
    world.signals.stop_asked = True

    with pytest.raises(DeadlineMissed):
        world.worker.run()

    clear_note.assert_called_once_with(P0, 0, WITHDRAW_TIMEOUT)


def test_nothing_is_taken_back_of_a_run_that_was_only_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group has no note yet: another batch is in the lanes when its partition leaves."""
    world = suspect_world(records=0)
    world.lanes.seconds = lambda: 1000.0
    world.broker.append(record(0, partition=P1))
    world.turn_until(lambda: world.lanes.in_flight)
    world.broker.append(record(0))
    while (run := world.quarantine.current) is None:
        world.turn()
    clear_note = Mock()
    monkeypatch.setattr(world.source, "clear_note", clear_note)

    world.source.revoke(P0)
    world.turn(5)

    assert not run.is_called
    assert world.quarantine.current is None
    clear_note.assert_not_called()


@pytest.mark.parametrize("ending", ["revoke", "stop"])
def test_a_run_that_is_answered_and_not_committed_when_its_partition_leaves_marks_no_record(ending: str) -> None:
    """The group refuses that commit, as when its coordinator moves. It is asked, and told again."""
    world = suspect_world(records=1)
    world.source.commit_fate = lambda: CommitFate(is_taken=False)
    while (run := world.quarantine.current) is None or not run.is_begun or not world.ledger.is_settled(run.place):
        world.turn()

    if ending == "revoke":
        world.source.revoke(P0)
        world.turn_for(1.0)
    else:
        world.signals.stop_asked = True
        with pytest.raises(DeadlineMissed):
            world.worker.run()

    assert world.answered().count("requests/0/0") == 1
    assert world.broker.committed[P0] == 1
    assert P0 not in world.broker.attempts


def test_an_error_that_was_not_foreseen_ends_the_process_like_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its record would run and end the process for ever."""
    world = suspect_world(records=1)
    read = world.codec.read
    monkeypatch.setattr(world.codec, "read", lambda some: 1 // 0 if some[0].partition == P0 else read(some))

    with pytest.raises(ZeroDivisionError):
        world.worker.run()

    assert world.broker.attempts[P0] == (4, True)


def test_a_note_is_withdrawn_before_the_transaction_with_its_answer_ends() -> None:
    """A later withdrawal would undo a transaction in doubt; an abort would leave the note to the next owner."""
    world = suspect_world(exactly_once=True, records=1)
    world.transactions.fate = lambda: TransactionFate(heard_after=1000.0)
    world.turn_until(lambda: world.transactions.is_ending and world.quarantine.is_exclusive)
    world.turn_until(lambda: any(source == "requests/0/0" for source in sources(world.transactions.inside)))

    world.source.revoke(P0)
    world.turn_for(1.0)

    assert world.broker.attempts[P0] == (4, False)


def test_a_worker_whose_isolated_run_waits_for_its_state_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full batches wait behind it, so nothing is taken and no lane runs, and its store may be away for long."""
    world = suspect_world(records=1)
    world.broker.append(*[record(at, partition=P1) for at in range(1, 40)])
    monkeypatch.setattr(world.states, "is_here", lambda _: False)
    world.turn(20)
    assert world.batcher.backlog >= world.conduct.inflight_batches
    assert not world.lanes.in_flight

    began = world.clock.now
    world.turn(10)

    assert world.clock.now - began == pytest.approx(10 * REPORT_WAIT)
