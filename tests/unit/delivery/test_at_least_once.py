"""At least once: when answers are sent, settled and committed."""

from __future__ import annotations

import pytest

from tests.builders import World, sources
from tests.chunks import P0, P1, answer_of, record, taken
from tests.fakes import CommitFate
from tests.unit.delivery.test_exactly_once import rejection, send
from worker.delivery.at_least_once import COMMIT_PATIENCE, REPORT_DUE


def world_of() -> World:
    world = World(dead_letters=False).start(P0, P1)
    world.source.poll(1, 0.0)
    return world


@pytest.fixture
def world() -> World:
    return world_of()


def turn_after(world: World, seconds: float) -> None:
    world.clock.wait(seconds)
    world.source.poll(1, 0.0)
    world.delivery.make_progress(world.clock.now, 0.0)


def test_an_offset_is_committed_once_its_answer_is_acknowledged(world: World) -> None:
    """The commit comes after the delivery report, at the end of the interval."""
    send(world, 4, 5)

    turn_after(world, 0.1)
    assert world.source.commits == []

    turn_after(world, 0.1)
    assert world.source.commits == [{P0: 6}]


def test_an_outcome_without_messages_waits_for_no_acknowledgement(world: World) -> None:
    """A skipped record sends nothing, and is committed after the records before it."""
    world.sink.delay = lambda _: 1.0
    send(world, 4)
    send(world, 5, skipped=[5])
    turn_after(world, 0.0)
    assert len(world.events.settled_at) == 1
    assert world.ledger.records == 2

    turn_after(world, 1.0)

    assert world.source.commits == [{P0: 6}]
    assert len(world.sink.sent) == 1
    assert len(world.events.settled_at) == 2


def test_answers_that_leave_together_are_sent_and_settled_in_their_order(world: World) -> None:
    """Their records came with several polls, and the answer to the first one was late."""
    places = [taken(world.ledger, record(offset)) for offset in (4, 5, 6)]
    last_first = [(place.places, [0], [answer_of(place)]) for [place] in reversed(places)]

    world.delivery.send(world.ledger.answer(last_first))
    turn_after(world, 0.2)

    assert sources(world.sink.sent) == ["requests/0/4", "requests/0/5", "requests/0/6"]
    assert world.source.commits == [{P0: 7}]
    assert world.ledger.records == 0


@pytest.mark.parametrize("wrong", [4, 5, 6], ids=["first", "middle", "last"])
@pytest.mark.parametrize("is_silent", [False, True])
def test_a_rejection_leaves_in_its_place_among_the_answers_of_its_chunk(*, wrong: int, is_silent: bool) -> None:
    """Its error and its dead letter take one place, or nothing takes it. All are settled together, once."""
    world = World().start(P0)
    world.source.poll(1, 0.0)
    places = taken(world.ledger, *map(record, (4, 5, 6)), now=world.clock.now)
    answers = [
        rejection(place.offset, is_silent=is_silent) if place.offset == wrong else answer_of(place) for place in places
    ]
    stretches = world.ledger.answer([(places[0].places, [0, 1, 2], answers)])

    world.delivery.send(stretches)
    turn_after(world, 0.2)

    times = {wrong: 0 if is_silent else 2}
    assert sources(world.sink.sent) == [f"requests/0/{at}" for at in (4, 5, 6) for _ in range(times.get(at, 1))]
    assert world.events.settled_at == [places[0].places.taken_at] * 3
    assert world.source.commits == [{P0: 7}]


def test_an_answer_is_let_go_once_it_is_sent(world: World) -> None:
    """Only its place waits for the broker."""
    [(places, _, _)] = send(world, 4)

    assert rejection(4) not in places.answers


def test_a_revoke_lets_no_answer_wait_for_company(world: World) -> None:
    """The group waits for the revoke."""
    send(world, 4)

    world.delivery.revoke([P0], world.clock.now + 1.0)

    assert world.sink.pushed == [1]


def test_at_most_one_commit_is_outstanding(world: World) -> None:
    """The next commit waits for the result of the last one, and then carries all offsets."""
    world.source.commit_fate = lambda: CommitFate(heard_after=1.0)
    send(world, 4)
    turn_after(world, 0.2)
    send(world, 5)
    turn_after(world, 0.5)
    assert world.source.commits == [{P0: 5}]

    turn_after(world, 0.6)

    assert world.source.commits == [{P0: 5}, {P0: 6}]


def test_a_failed_commit_is_tried_again(world: World) -> None:
    """A refused commit is no fault: the next one carries its offsets."""
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
    """So a lone answer counts as acknowledged at once, not when the next commit is due."""
    send(world, 4)

    assert world.delivery.next_due == pytest.approx(world.clock.now + REPORT_DUE, abs=1e-6)
