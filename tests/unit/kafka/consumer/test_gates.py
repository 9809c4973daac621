"""Gates hold a partition's records back while the group, the broker or the client fails to answer."""

from __future__ import annotations

from functools import partial

import pytest
from confluent_kafka import KafkaError

from tests.unit.kafka.scripted import Incoming, P, Q, World, new_world
from worker.core.records import Partition, Suspect
from worker.kafka.consumer.flow import MOST_BYTES_HELD, MOST_HELD, By
from worker.kafka.offsets.group_offsets import PATIENCE

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
    """Let both partitions flow, with their notes taken."""
    world.brings((P, 0), (Q, 0))
    world.notes_heard()
    world.client.asked.clear()
    return world


# The first record of an assignment


def test_the_first_records_of_a_poll_are_asked_about_and_noted_together(world: World) -> None:
    """One question covers all. Each note is committed at the group's offset, or else at the record's own."""
    world.client.group = {P: (5, "attempts=1")}

    records = world.brings((P, 6), (P, 7), (Q, 3))

    assert records == [(P, 6), (P, 7), (Q, 3)]
    assert [sorted(asked) for asked in world.client.asked] == [[0, 1]]
    assert world.notes == [[(0, 5, "attempts=2")], [(1, 3, "attempts=1 new")]]


def test_nothing_comes_of_a_partition_that_the_group_says_nothing_about(world: World) -> None:
    """The group is asked again, and records that came meanwhile are kept."""
    world.client.is_away = True
    assert world.brings((P, 3), (P, 4)) == []
    assert world.brings((P, 5)) == []
    world.client.is_away = False
    world.clock.now += 1.0

    assert world.polled_twice() == [(P, 3), (P, 4), (P, 5)]

    assert world.notes == [[(0, 3, "attempts=1 new")]]


def test_what_waits_for_long_is_fetched_no_more(world: World) -> None:
    """Otherwise a whole backlog would be held. The source hands out no more than asked for."""
    world.client.is_away = True
    records = [(P, at) for at in range(MOST_HELD)]
    world.brings(*records)
    assert world.client.stopped == {0}
    world.client.is_away = False
    world.clock.now += 1.0

    assert world.polled_twice() == records[:20]
    assert world.client.stopped == set()


def test_what_is_large_of_all_partitions_together_is_fetched_no_more(world: World) -> None:
    """A worker may hold hundreds of partitions, and the group may be away for all at once."""
    partitions = [Partition("r", number) for number in range(2, 52)]
    world.assign(*partitions)
    world.client.is_away = True
    quarter = bytes(MOST_BYTES_HELD // 4)
    for partition in partitions:
        world.client.script.append(partial(list, [Incoming(partition, 0, content=quarter)]))
        world.polled()

    assert world.client.stopped == set(range(5, 52))
    world.client.is_away = False
    world.clock.now += 1.0
    assert sorted(world.polled(50) + world.polled(50)) == [(partition, 0) for partition in partitions]
    assert world.client.stopped == set()


def test_callbacks_run_while_a_full_loop_takes_what_was_held_one_by_one(world: World) -> None:
    """Otherwise rebalances would wait until all is taken. Records fetched meanwhile come later."""
    world.client.is_away = True
    world.brings(*[(P, at) for at in range(20)])
    world.client.is_away = False
    world.clock.now += 1.0
    taken = world.polled(1)
    world.client.script.append(lambda: [Incoming(P, 20)])
    for _ in range(3):
        taken += world.polled(1, 0.0)
    world.will_revoke(Q)
    taken += world.polled(1, 0.0)

    assert not world.client.script
    assert Q not in world.client.held
    assert taken == [(P, at) for at in range(5)]
    assert world.polled(100) == [(P, at) for at in range(5, 21)]


# Suspects


def test_a_suspect_whose_end_is_not_known_waits(world: World) -> None:
    """Its isolated runs would have no end. The wait does not add a second note."""
    world.client.group = {P: (5, "attempts=3")}
    world.client.leaderless = {0}
    assert world.brings((P, 5)) == []
    assert not world.notes
    world.client.leaderless = set()
    world.clock.now += 1.0

    assert world.polled_twice() == [(P, 5)]

    assert world.notes == [[(0, 5, "attempts=4")]]
    assert world.assignments.suspects == [Suspect(P, 3, None, 100)]


# Notes under way


def test_nothing_is_handed_out_before_its_attempt_is_noted(world: World) -> None:
    """A record that ends the process at once must have been counted, and a note that comes late would do harm."""
    world.client.hears_at_once = False
    assert world.brings((P, 0)) == []
    assert world.brings((P, 1)) == []
    assert world.source.has_note_under_way([P])

    world.notes_heard()

    assert world.polled_twice() == [(P, 0), (P, 1)]
    assert not world.source.has_note_under_way([P])
    assert not world.source.commit_results()


def test_a_refused_note_is_sent_again(world: World) -> None:
    """It waits a while, since the group is busy."""
    world.client.hears_at_once = False
    world.brings((P, 0))
    world.notes_heard(REFUSED)
    assert world.polled_twice() == []
    assert not world.notes

    world.clock.now += 1.0
    world.polled()

    assert world.notes == [[(0, 0, "attempts=1 new")]]


def test_a_note_without_a_result_is_sent_again(world: World) -> None:
    """The client takes long to give up on a coordinator."""
    world.client.hears_at_once = False
    world.brings((P, 0))
    world.client.commits.clear()

    world.clock.now += PATIENCE
    assert not world.source.has_note_under_way([P])
    world.polled()

    assert world.notes == [[(0, 0, "attempts=1 new")]]


def test_a_partition_in_doubt_is_neither_asked_about_nor_handed_out(world: World) -> None:
    """A transaction of its earlier assignment may still commit it."""
    world.assignments.doubted = {P}
    assert world.brings((P, 0), (Q, 0)) == [(Q, 0)]
    assert world.client.asked == [[1]]

    world.assignments.doubted = set()

    assert world.polled_twice() == [(P, 0)]


def test_what_was_committed_since_the_client_asked_is_not_read_again(world: World) -> None:
    """The transaction in doubt was committed after all: the partition goes on behind it."""
    world.client.group = {P: (3, "")}

    assert world.brings((P, 0), (P, 1)) == []
    world.polled()

    assert world.client.seeks == [(0, 3)]
    assert world.brings((P, 3)) == [(P, 3)]


def test_an_offset_beyond_the_end_is_of_records_that_are_gone(world: World) -> None:
    """The topic was made anew: it is read from the client's beginning, and noted so. A rewind would loop."""
    world.client.group = {P: (101, "attempts=7 trial")}

    assert world.brings((P, 0), (P, 1)) == [(P, 0), (P, 1)]

    assert not world.client.seeks
    assert world.notes == [[(0, 0, "attempts=1")]]
    assert not world.assignments.suspects


def test_the_result_of_an_earlier_assignment_changes_nothing(world: World) -> None:
    """A partition that came back has a note of its own under way."""
    world.client.hears_at_once = False
    world.brings((P, 0))
    earlier = world.client.commits.pop()
    world.revoke(P)
    world.assign(P)
    world.client.group = {P: (0, "attempts=1")}
    world.brings((P, 0))

    world.commit_heard(*earlier)

    assert world.source.has_note_under_way([P])


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
    assert not world.notes


def test_a_client_that_cannot_seek_yet_is_asked_at_the_next_poll(world: World) -> None:
    """Until then no record comes."""
    running(world)
    world.source.rewind([P])
    world.client.is_stuck = True
    assert world.brings((P, 5)) == []
    world.client.is_stuck = False

    assert world.brings((P, 0)) == [(P, 0)]

    assert world.client.seeks == [(0, 0)]


# Partitions withheld


def test_a_partition_is_fetched_when_nothing_stops_it(world: World) -> None:
    """The loop and the source each have their own reasons."""
    pauses = world.source._pauses
    pauses.stop(P, By.LOOP)
    pauses.stop(P, By.SOURCE)

    pauses.release(P, By.LOOP)
    assert world.client.stopped == {P.number}

    pauses.release(P, By.LOOP)
    pauses.release(P, By.SOURCE)
    assert world.client.stopped == set()


# A group that starts at the end


def test_a_group_without_an_offset_starts_at_the_end_once_that_is_committed(latest: World) -> None:
    """The end is asked for and committed in the poll that brings the assignment; no record comes before the commit."""
    latest.joins(P)
    assert latest.notes == [[(0, 100, "attempts=0 new")]]
    assert latest.brings((P, 101)) == []

    latest.notes_heard()
    latest.client.group = {P: (100, "attempts=0")}

    assert latest.brings((P, 100)) == [(P, 100)]
    assert latest.client.seeks == [(0, 100)]
    assert latest.notes == [[(0, 100, "attempts=1")]]


def test_a_start_is_awaited_until_it_is_committed(latest: World) -> None:
    """Records published before that may lie before the end where the worker begins."""
    latest.client.leaderless = {1}
    latest.joins(P, Q)
    assert latest.source.starts_awaited == 2

    latest.notes_heard()
    latest.polled()
    assert latest.source.starts_awaited == 1
    latest.revoke(Q)

    assert latest.source.starts_awaited == 0


def test_a_partition_without_a_leader_keeps_no_other_from_its_start(latest: World) -> None:
    """If one has no leader, the client gives no end for any partition in that question."""
    latest.client.leaderless = {0}

    latest.joins(P, Q)

    assert latest.notes == [[(1, 100, "attempts=0 new")]]


def test_what_came_before_the_end_was_known_is_not_left_out(latest: World) -> None:
    """The client began by itself, so the partition starts there."""
    latest.client.is_away = True
    latest.joins(P)
    assert latest.brings((P, 90)) == []
    latest.client.is_away = False
    latest.clock.now += 1.0

    latest.polled()

    assert latest.notes == [[(0, 90, "attempts=0 new")]]


# How far the client has come


def test_nothing_is_said_of_a_partition_where_something_waits(world: World) -> None:
    """The client counts records as passed that we may hold, or have dropped."""
    world.client.position_of = {0: 6, 1: 3}
    world.client.script.append(lambda: [Incoming(P, 5), Incoming(Q, 2)])
    assert world.polled() == []
    assert world.source.positions() == {}

    assert world.polled() == [(P, 5), (Q, 2)]
    assert world.source.positions() == {P: 6, Q: 3}

    world.source.rewind([P])
    assert world.source.positions() == {Q: 3}
