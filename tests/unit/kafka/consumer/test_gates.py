"""Gates give nothing of a partition while it is not known where it goes on."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError

from tests.unit.kafka.scripted import Incoming, P, Q, World, new_world
from worker.kafka.consumer.flow import By

REFUSED = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A source that holds two partitions and starts at the beginning."""
    here = new_world(monkeypatch)
    here.assign(P, Q)
    here.client.asked.clear()  # the questions of the start
    return here


@pytest.fixture
def latest(monkeypatch: pytest.MonkeyPatch) -> World:
    """A source that starts at the end."""
    return new_world(monkeypatch, auto_offset_reset="latest")


def running(world: World) -> World:
    """Let both partitions flow."""
    world.brings((P, 0), (Q, 0))
    return world


# The first record of an assignment


def test_the_first_records_come_in_the_poll_that_fetched_them(world: World) -> None:
    """The group was asked at the assignment, and nothing is asked or committed since."""
    world.client.script.append(lambda: [Incoming(P, 6), Incoming(P, 7), Incoming(Q, 3)])

    assert world.polled() == [(P, 6), (P, 7), (Q, 3)]
    assert not world.client.asked
    assert not world.commits


@pytest.mark.parametrize(("note", "has_served"), [("", True), ("new", False), ("restored, as new", True)])
def test_a_note_says_only_whether_the_group_is_new(
    monkeypatch: pytest.MonkeyPatch, note: str, *, has_served: bool
) -> None:
    """Other tools write notes, too; the records are handed out all the same."""
    world = new_world(monkeypatch)
    world.client.group = {P: (5, note)}
    world.assign(P)
    assert not world.source.has_served

    assert world.brings((P, 5)) == [(P, 5)]

    assert world.source.has_served == has_served


def test_a_partition_in_doubt_is_neither_asked_about_nor_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction of its earlier assignment may still commit it. Then it goes on where the transaction ended."""
    world = new_world(monkeypatch)
    world.assignments.doubted = {P}
    world.client.group = {P: (0, ""), Q: (0, "")}
    world.assign(P, Q)
    world.client.asked.clear()
    assert world.brings((P, 0), (Q, 0)) == [(Q, 0)]
    assert not world.client.asked
    assert world.client.stopped == {0}

    world.assignments.doubted = set()
    world.client.group[P] = (3, "")
    world.polled()

    assert world.client.seeks == [(0, 3)]
    assert world.client.stopped == set()
    assert world.brings((P, 3)) == [(P, 3)]


def in_doubt_until_now(monkeypatch: pytest.MonkeyPatch) -> World:
    """A partition was assigned while a transaction of its earlier assignment ended, which is over now."""
    world = new_world(monkeypatch)
    world.assignments.doubted = {P}
    world.assign(P)
    world.assignments.doubted = set()
    return world


def test_a_partition_in_doubt_without_an_offset_is_moved_after_its_first_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client looks up where its log begins, and would undo a seek meanwhile."""
    world = in_doubt_until_now(monkeypatch)
    world.client.group = {P: (3, "new")}
    world.client.asked.clear()
    assert world.polled_twice() == []
    assert not world.client.seeks
    assert world.client.asked == [[0]]

    assert world.brings((P, 0)) == []

    assert world.client.begun == [(0, OFFSET_BEGINNING)]
    assert world.client.seeks == [(0, 3)]
    assert world.brings((P, 3)) == [(P, 3)]


def test_a_partition_in_doubt_where_the_group_has_nothing_flows_when_that_is_sure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client has begun at the right place by itself."""
    world = in_doubt_until_now(monkeypatch)
    world.polled()

    world.client.script.append(lambda: [Incoming(P, 3)])

    assert world.polled() == [(P, 3)]
    assert not world.client.seeks


def test_an_offset_beyond_the_end_is_of_records_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic was made anew: it is read from the client's beginning. A second look would find the old offset."""
    world = new_world(monkeypatch)
    world.client.group = {P: (101, "")}
    world.assign(P)

    assert world.brings((P, 0), (P, 1)) == [(P, 0), (P, 1)]

    assert not world.client.seeks
    assert not world.commits


# Rewinds


def test_what_was_fetched_before_a_rewind_does_not_come(world: World) -> None:
    """Records that the client still holds are dropped, and those it brings while the group does not answer."""
    running(world)
    world.client.group = {P: (2, "")}
    world.client.is_away = True
    world.source.rewind([P])

    assert world.brings((P, 5), (Q, 1)) == [(Q, 1)]
    world.client.is_away = False
    world.clock.now += 1.0

    assert world.brings((P, 2), (Q, 2)) == [(P, 2), (Q, 2)]
    assert world.client.seeks == [(0, 2)]
    assert not world.commits


def test_a_client_that_cannot_seek_yet_is_asked_at_the_next_poll(world: World) -> None:
    """Until then no record comes."""
    running(world)
    world.source.rewind([P])
    world.client.is_stuck = True
    assert world.brings((P, 5)) == []
    world.client.is_stuck = False

    assert world.brings((P, 0)) == [(P, 0)]

    assert world.client.seeks == [(0, 0)]


def test_a_partition_is_fetched_when_nothing_stops_it(world: World) -> None:
    """The gates and the spoiled batches each have their own reasons."""
    pauses = world.source._pauses
    pauses.stop(P, By.SPOILED)
    pauses.stop(P, By.GATES)

    pauses.release(P, By.SPOILED)
    assert world.client.stopped == {P.number}

    pauses.release(P, By.SPOILED)
    pauses.release(P, By.GATES)
    assert world.client.stopped == set()


# Held partitions


def test_a_held_partition_gives_nothing_until_it_is_released_and_goes_on_with_its_first_record(world: World) -> None:
    """It is not fetched, and the group is not asked about it: its offset is known."""
    running(world)
    world.source.hold(P, 5)
    assert world.brings((P, 6), (Q, 1)) == [(Q, 1)]
    assert world.client.stopped == {P.number}
    assert world.polled_twice() == []

    world.source.release(P)

    assert world.brings((P, 5)) == [(P, 5)]
    assert world.client.seeks == [(0, 5)]
    assert world.client.stopped == set()
    assert not world.client.asked


def test_a_released_partition_to_which_the_client_cannot_go_yet_is_tried_again(world: World) -> None:
    """Until then no record of it comes, so none is passed over."""
    running(world)
    world.source.hold(P, 5)
    world.source.release(P)
    world.client.is_stuck = True
    assert world.brings((P, 7)) == []
    world.client.is_stuck = False

    assert world.brings((P, 5)) == [(P, 5)]

    assert world.client.seeks == [(0, 5)]


def test_a_rewind_ends_a_hold(world: World) -> None:
    """The partition is read again from the group's offset, though nobody released it."""
    running(world)
    world.client.group = {P: (2, "")}
    world.source.hold(P, 5)

    world.source.rewind([P])

    assert world.brings((P, 2)) == [(P, 2)]
    assert world.client.seeks == [(0, 2)]
    world.source.release(P)
    assert world.brings((P, 3)) == [(P, 3)]


def test_a_partition_that_left_is_neither_held_nor_released(world: World) -> None:
    """It may leave in the poll in which it would have been held."""
    running(world)
    world.revoke(P)
    world.polled()

    world.source.hold(P, 5)
    world.source.release(P)

    assert world.brings((Q, 1)) == [(Q, 1)]
    assert world.client.stopped == set()
    assert not world.client.seeks


# A group that starts at the end


def test_a_partition_with_an_offset_flows_at_once(latest: World) -> None:
    """It has its start: nothing is asked again."""
    latest.client.group = {P: (5, "")}
    latest.joins(P)

    assert latest.source.starts_awaited == 0
    assert latest.brings((P, 5)) == [(P, 5)]
    assert latest.client.asked == [[0]]
    assert not latest.commits


def test_a_group_without_an_offset_starts_at_the_end_once_that_is_committed(latest: World) -> None:
    """The end is asked for and committed in the poll that brings the assignment; no record comes before the commit."""
    latest.client.hears_at_once = False
    latest.joins(P)
    assert latest.commits == [[(0, 100, "new")]]
    assert latest.brings((P, 101)) == []

    latest.results_heard()

    assert latest.brings((P, 100)) == [(P, 100)]
    assert latest.client.seeks == [(0, 100)]
    assert not latest.commits
    assert not latest.source.has_served


def test_a_refused_start_is_sent_again(latest: World) -> None:
    """It waits a while, since the group is busy."""
    latest.client.hears_at_once = False
    latest.joins(P)
    latest.results_heard(REFUSED)
    latest.polled()
    assert not latest.commits

    latest.clock.now += 1.0
    latest.polled()

    assert latest.commits == [[(0, 100, "new")]]


def test_a_start_of_an_earlier_assignment_is_waited_for(latest: World) -> None:
    """A second commit beside it could arrive after the delivery's first, and undo it."""
    latest.client.hears_at_once = False
    latest.joins(P)
    latest.revoke(P)
    latest.client.end = 120
    latest.joins(P)
    assert latest.commits == [[(0, 100, "new")]]

    latest.results_heard()
    latest.polled()

    assert latest.commits == [[(0, 120, "new")]]


def test_a_start_is_awaited_until_it_is_committed(latest: World) -> None:
    """Records published before that may lie before the end where the worker begins."""
    latest.client.leaderless = {1}
    latest.joins(P, Q)
    assert latest.source.starts_awaited == 2

    latest.results_heard()
    latest.polled()
    assert latest.source.starts_awaited == 1
    latest.revoke(Q)

    assert latest.source.starts_awaited == 0


def test_a_partition_without_a_leader_keeps_no_other_from_its_start(latest: World) -> None:
    """If one has no leader, the client gives no end for any partition in that question."""
    latest.client.leaderless = {0}

    latest.joins(P, Q)

    assert latest.commits == [[(1, 100, "new")]]


def test_what_came_before_the_end_was_known_is_not_left_out(latest: World) -> None:
    """The client began by itself, so the partition starts there."""
    latest.client.is_away = True
    latest.joins(P)
    assert latest.brings((P, 90)) == []
    latest.client.is_away = False
    latest.clock.now += 1.0

    latest.polled()

    assert latest.commits == [[(0, 90, "new")]]


def test_where_an_offset_lies_beyond_the_end_the_first_record_is_the_start(latest: World) -> None:
    """The client began at the end of a topic made anew. A death must not lose what came since."""
    latest.client.group = {P: (101, "")}
    latest.joins(P)

    assert latest.brings((P, 90), (P, 91)) == []
    assert latest.commits == [[(0, 90, "new")]]

    assert latest.client.seeks == [(0, 90)]
    assert latest.brings((P, 90), (P, 91)) == [(P, 90), (P, 91)]


# How far the client has come


def test_nothing_is_said_of_a_partition_that_is_shut(world: World) -> None:
    """The client counts records as passed that we have dropped."""
    world.client.position_of = {0: 6, 1: 3}
    assert world.brings((P, 5), (Q, 2)) == [(P, 5), (Q, 2)]
    assert world.source.positions() == {P: 6, Q: 3}

    world.source.rewind([P])
    assert world.source.positions() == {Q: 3}


def test_nothing_is_said_of_a_partition_that_is_held(world: World) -> None:
    """The client may have passed the record that the partition waits at."""
    world.client.position_of = {0: 6, 1: 3}
    assert world.brings((P, 5), (Q, 2)) == [(P, 5), (Q, 2)]

    world.source.hold(P, 5)

    assert world.source.positions() == {Q: 3}
