"""At least once: what is sent, settled and committed when."""

from __future__ import annotations

import pytest

from tests.builders import P0, P1, World, record
from tests.fakes import CommitFate
from worker.core.failures import Code, KafkaFatal
from worker.core.records import Partition, Place, Rejection, Reply
from worker.delivery.at_least_once import COMMIT_PATIENCE, REPORT_DUE

FAR = 1e9


@pytest.fixture
def world() -> World:
    world = World(dead_letters=False).start(P0, P1)
    world.source.poll(1, 0.0)
    return world


def send(world: World, *offsets: int, partition: Partition = P0, value: bytes = b"odd") -> list[Place]:
    """Takes records and sends an error for each."""
    places: list[Place] = []
    for offset in offsets:
        place = world.ledger.track(record(offset, partition=partition), 1, 10, world.clock.now)
        wrong = Rejection(
            record(offset, partition=partition, value=value), Code.INTERNAL, "no", Reply("raw"), value == b"skip"
        )
        places += world.ledger.answer([(place, wrong)])
    world.delivery.send(places)
    return places


def turn_after(world: World, seconds: float) -> None:
    world.clock.wait(seconds)
    world.source.poll(1, 0.0)
    world.delivery.turn(world.clock.now, 0.0)


def test_an_offset_is_committed_once_its_answer_is_acknowledged(world: World) -> None:
    """The commit follows the delivery report, at the end of the interval."""
    send(world, 4, 5)

    turn_after(world, 0.1)
    assert world.source.commits == []

    turn_after(world, 0.1)
    assert world.source.commits == [{P0: 6}]


def test_a_place_is_settled_with_its_last_message() -> None:
    """An error that is also dead-lettered is settled when both messages are acknowledged."""
    world = World(dead_letters=True).start(P0)
    world.source.poll(1, 0.0)
    world.sink.delay = lambda message: 0.01 if message.topic == "responses" else 50.0
    send(world, 4)

    turn_after(world, 1.0)
    assert world.ledger.records == 1

    turn_after(world, 50.0)
    assert world.ledger.records == 0


def test_an_outcome_without_messages_is_settled_at_once(world: World) -> None:
    """A skipped record is settled without a word to anybody, behind those before it."""
    world.sink.delay = lambda _: 1.0
    send(world, 4)
    send(world, 5, value=b"skip")
    assert world.ledger.records == 2

    turn_after(world, 1.0)

    assert world.source.commits == [{P0: 6}]
    assert len(world.sink.sent) == 1
    assert len(world.events.settled_at) == 2


def test_an_outcome_is_let_go_once_it_is_sent(world: World) -> None:
    """What waits for the broker is a place, not a batch's arrays."""
    [place] = send(world, 4)

    assert place.outcome is None


def test_a_revoke_lets_no_answer_wait_for_company(world: World) -> None:
    """The group waits for it."""
    send(world, 4)

    world.delivery.revoke([P0], world.clock.now + 1.0)

    assert world.sink.pushed == [1]


def test_a_refused_answer_stops_the_worker(world: World) -> None:
    """An answer that the broker never takes is fatal, and nothing is committed past it."""
    world.sink.refusal = "not authorised"
    send(world, 4)

    with pytest.raises(KafkaFatal, match="not authorised"):
        turn_after(world, 1.0)

    assert world.source.commits == []


def test_at_most_one_commit_is_outstanding(world: World) -> None:
    """The next commit waits for the result of the last one, and then carries all there is."""
    world.source.commit_fate = lambda: CommitFate(heard_after=1.0)
    send(world, 4)
    turn_after(world, 0.2)
    send(world, 5)
    turn_after(world, 0.5)
    assert world.source.commits == [{P0: 5}]

    turn_after(world, 0.6)

    assert world.source.commits == [{P0: 5}, {P0: 6}]


def test_a_failed_commit_is_tried_again(world: World) -> None:
    """A refused commit is no fault: the offsets are committed with the next one."""
    world.source.commit_fate = lambda: CommitFate(is_taken=False)
    send(world, 4)
    turn_after(world, 0.2)
    world.source.commit_fate = CommitFate

    turn_after(world, 0.2)
    turn_after(world, 0.2)

    assert world.source.commits == [{P0: 5}, {P0: 5}]
    assert world.events.commit_results[0].failed == {P0: "refused"}
    assert world.delivery.is_idle


def test_a_commit_whose_result_never_comes_is_repeated_after_a_while(world: World) -> None:
    """A lost result does not stop commits for good."""
    world.source.commit_fate = lambda: CommitFate(is_taken=False, heard_after=None)
    send(world, 4)
    turn_after(world, 0.2)

    turn_after(world, COMMIT_PATIENCE - 1.0)
    assert len(world.source.commits) == 1

    turn_after(world, 1.0)
    assert len(world.source.commits) == 2


def test_reports_are_due_soon_while_answers_are_on_the_way(world: World) -> None:
    """A lone answer counts as acknowledged when it is, not when the next commit is due."""
    send(world, 4)

    assert world.delivery.next_due == pytest.approx(world.clock.now + REPORT_DUE, abs=1e-6)


def test_a_drain_commits_at_once(world: World) -> None:
    """From the drain on no commit waits for the interval, and idle means committed."""
    world.delivery.commit_promptly(is_urgent=True)
    send(world, 4)

    turn_after(world, 0.002)
    assert world.source.commits == [{P0: 5}]
    assert not world.delivery.is_idle

    turn_after(world, 0.003)
    assert world.delivery.is_idle


def test_a_revoke_commits_what_was_sent_as_the_last_call(world: World) -> None:
    """Reports of the revoked partitions are waited for and committed; the others keep their own pace."""
    world.sink.delay = lambda _: 0.5
    send(world, 4)
    send(world, 7, partition=P1)

    unsettled = world.delivery.revoke([P0], world.clock.now + 10.0)

    assert unsettled == 0
    assert world.source.commits == [{P0: 5}]
    assert world.ledger.committable() == {P1: 8}


def test_a_revoke_gives_up_at_its_deadline(world: World) -> None:
    """What the broker has not acknowledged by then leaves unsettled and uncommitted."""
    world.sink.delay = lambda _: FAR
    send(world, 4, 5)
    deadline = world.clock.now + 2.0

    unsettled = world.delivery.revoke([P0], deadline)

    assert unsettled == 2
    assert world.clock.now == pytest.approx(deadline, abs=0.02)
    assert world.source.commits == []


def test_a_lost_partition_is_never_committed(world: World) -> None:
    """Settled or not, a lost partition belongs to somebody else."""
    send(world, 4)
    turn_after(world, 0.01)
    assert world.ledger.committable() == {P0: 5}

    assert world.delivery.lost([P0]) == 0

    turn_after(world, 1.0)
    assert world.source.commits == []


def test_an_answer_on_the_way_weighs_what_it_is_and_not_what_its_request_was(world: World) -> None:
    """A model that makes large answers of small requests is bounded by its answers."""
    world.sink.delay = lambda _: FAR
    before = world.ledger.size

    send(world, 4)

    message = world.sink.sent[-1]
    assert world.ledger.size - before == len(message.value or b"")
