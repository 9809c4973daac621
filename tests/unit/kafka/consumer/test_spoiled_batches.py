"""How records that cannot be read are handed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from tests.fakes import Onlooker
from tests.unit.kafka.scripted import Incoming, P, Q, World, new_world
from worker.core.stalls import LOOKS


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A source with two partitions that both flow. Offsets 7 to 506 of the first cannot be unpacked."""
    return flowing(new_world(monkeypatch))


def flowing(world: World) -> World:
    world.assign(P, Q)
    world.brings((P, 6), (Q, 6))
    world.client.first, world.client.end = 0, 1000
    world.client.unreadable.append((7, 506))
    return world


def rest(world: World, most: int = 1000, polls: int = 20) -> list[int]:
    """Offsets of the first partition that further polls bring."""
    return [at for _ in range(polls) for partition, at in world.polled(most) if partition == P]


def test_each_record_of_a_batch_is_handed_on_once(world: World) -> None:
    """They have no value but a reason, and come in order; the client goes on behind the last one."""
    came = [at for _, at in world.fails(7)] + rest(world)

    assert came == list(range(7, 507))
    assert world.client.seeks == [(0, 7), (0, 507)]
    assert len(world.client.looks) < 20


def test_a_batch_that_is_searched_is_not_fetched(world: World) -> None:
    """Each fetch would unpack it in vain. It is fetched again when all its records were handed on."""
    world.fails(7)
    assert world.client.stopped == {P.number}

    rest(world)

    assert world.client.stopped == set()


def test_what_others_bring_leaves_room_for_the_batch(world: World) -> None:
    """A backlog elsewhere does not keep it waiting for ever."""
    asked: list[int] = []

    def consume(_count: int, _timeout: float) -> list[Incoming]:
        asked.append(_count)
        return [Incoming(Q, 7 + n) for n in range(_count)]

    world.fails(7)
    world.client.consume = consume  # type: ignore[method-assign]  # an endless backlog

    came = world.polled(100)

    assert asked == [75]
    assert [partition for partition, _ in came].count(P) == 25


def test_nothing_is_handed_on_while_the_loop_wants_nothing(world: World) -> None:
    """The bounds of records in flight hold for these records, too."""
    first = world.fails(7)
    world.source.pause()

    assert rest(world) == []

    world.source.resume()
    assert [at for _, at in first] + rest(world) == list(range(7, 507))


def test_a_partition_that_leaves_takes_its_batch_along(world: World) -> None:
    """Its next owner answers the rest, and so does this worker if it comes back."""
    world.fails(7)
    world.revoke(P)

    assert rest(world) == []

    world.assign(P)
    assert rest(world) == []
    assert world.client.looks[-1] < 600


def test_a_group_that_stands_in_the_middle_of_a_batch_goes_on_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart answers nothing twice, though the client names the batch by its first offset."""
    world = new_world(monkeypatch)
    world.client.group[P] = (300, "")
    world.client.unreadable, world.client.end = [(7, 506)], 1000
    world.assign(P)

    came = [at for _, at in world.fails(7)] + rest(world)

    assert came == list(range(300, 507))


def test_a_log_that_begins_in_the_middle_of_a_batch_is_read_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests before it are deleted."""
    world = new_world(monkeypatch)
    world.client.unreadable, world.client.first, world.client.end = [(7, 506)], 400, 1000
    world.assign(P)

    assert [at for _, at in world.fails(7)] + rest(world) == list(range(400, 507))


def test_the_rest_of_a_batch_of_which_a_part_was_found_follows(world: World) -> None:
    """The client names its first offset again, and nothing is handed on twice."""
    world.client.unreadable[0] = 7, 106
    came = [at for _, at in world.fails(7)] + rest(world)
    world.client.unreadable[0] = 7, 506

    came += [at for _, at in world.fails(7)] + rest(world)

    assert came == list(range(7, 507))


def test_a_batch_that_another_client_can_read_is_read_again(world: World) -> None:
    """The cause was the network, or a disk that was repaired."""
    world.client.unreadable.clear()

    assert world.fails(7) + [(P, at) for at in rest(world)] == []

    assert world.client.seeks == [(0, 7)]
    assert world.client.stopped == set()
    assert world.brings((P, 7)) == [(P, 7)]


def test_how_far_the_client_has_come_says_nothing_while_a_batch_is_handed_on(world: World) -> None:
    """The client stands behind the batch; a commit of that position would skip requests."""
    world.client.position_of = {P.number: 507, Q.number: 7}
    world.fails(7)

    assert world.source.positions() == {Q: 7}

    rest(world)
    assert world.source.positions() == {P: 507, Q: 7}


@pytest.mark.parametrize("offset", [5, 100])
def test_a_rewind_reads_from_where_the_group_stands(world: World, offset: int) -> None:
    """Records known to be spoiled come at once from there; records before them may be readable."""
    world.client.group[P] = (offset, "")
    world.fails(7)

    world.source.rewind([P])

    assert rest(world) == (list(range(100, 507)) if offset == 100 else [])
    assert world.client.seeks[-1] == (0, 507 if offset == 100 else 5)
    assert world.client.stopped == set()


def test_after_a_rewind_the_rest_of_a_batch_comes_behind_the_part_that_came_again(world: World) -> None:
    """The group stands before that part, and no record is handed on twice."""
    world.client.unreadable[0] = 7, 106
    world.fails(7)
    rest(world)
    world.client.group[P] = (50, "")
    world.source.rewind([P])
    came = rest(world)
    world.client.unreadable[0] = 7, 506

    came += [at for _, at in world.fails(7)] + rest(world)

    assert came == list(range(50, 507))


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> World:
    """A source whose client gives offset 6 of the first partition and cannot parse 7 to 29."""
    world = new_world(monkeypatch, Onlooker())
    world.assign(P, Q)
    world.brings((P, 6), (Q, 6))
    world.client.first, world.client.end = 0, 100
    world.client.spoiled = 7, 29
    return world


def test_records_that_the_client_says_nothing_about_are_handed_on(
    spoiled: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Each comes once, with the reason and in order; the client goes on behind the last one."""
    spoiled.stands(7, LOOKS)
    early = rest(spoiled)
    spoiled.stands(7, 2)

    came = [record for _ in range(5) for record in spoiled.source.poll(10, 0.1)]

    assert early == []
    assert [record.offset for record in came] == list(range(7, 30))
    assert all("damaged on the broker's disk" in (record.unreadable or "") for record in came)
    assert spoiled.client.looks == list(range(7, 31))
    assert spoiled.client.seeks == [(0, 30)]
    assert spoiled.client.stopped == set()
    assert "the 23 records from 7 to 29, one batch, cannot be read and are answered with errors" in caplog.text


def test_nothing_is_stepped_over_behind_an_open_transaction(spoiled: World) -> None:
    """The partition is reported as stalled. A later look finds out if there is anything to read."""
    spoiled.stands(7, 10 * LOOKS, stable=7)

    assert rest(spoiled) == []
    assert spoiled.client.looks == []
    assert cast("Onlooker", spoiled.source._reports.watcher).stalls[P].is_transaction


@pytest.mark.parametrize("stop", [lambda w: w.source.pause(), lambda w: w.revoke(P)])
def test_a_partition_that_we_do_not_fetch_does_not_stall(spoiled: World, stop: Callable[[World], None]) -> None:
    """The loop stopped it, or it is not ours."""
    stop(spoiled)

    spoiled.stands(7, 2 * LOOKS)

    assert rest(spoiled) == []
    assert cast("Onlooker", spoiled.source._reports.watcher).stalls == {}


def test_a_partition_whose_end_is_looked_for_stays_stalled_and_is_not_looked_at_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search of a long batch takes longer than a second."""
    searches: list[Callable[[], None]] = []
    onlooker = Onlooker()
    world = new_world(monkeypatch, onlooker, background=searches.append)
    world.assign(P)
    world.brings((P, 6))
    world.client.spoiled = 7, 29

    world.stands(7, 2 * LOOKS)
    world.polled()
    world.stands(7, 2 * LOOKS)
    world.polled()

    for search in searches:
        search()
    assert onlooker.stalls[P].offset == 7
    assert world.client.looks == list(range(7, 31))
