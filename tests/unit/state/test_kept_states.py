"""A clean stop leaves the states to the next start, which ends up with those of the whole changelog."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import World
from tests.chunks import P0
from tests.fakes import CommitFate, FakeStore, TransactionFate
from tests.unit.state.test_in_the_loop import answers, both, in_memory, kept, of, served
from worker.core.failures import BadConfiguration
from worker.core.records import Record
from worker.state import Extent, why_not

AT = 1_000_000.0


def keeping(before: World | None = None, **more: Any) -> World:
    """A worker, or its successor in that directory, which has the states left there and restores the rest."""
    store = FakeStore()
    if before is not None:
        assert before.store is not None
        store = before.store.reopened()
        more |= {"clock": before.clock, "broker": before.broker, "exactly_once": before.exactly_once}
    world = World(has_state=True, store=store, most_in_memory=2, keeps=True, **more).start(P0)
    world.turn_for(1.0)
    return world


def begun() -> World:
    """A worker that has served two requests of each of ten keys, exactly once."""
    world = keeping(exactly_once=True)
    served(world, *some(0))
    return world


def elsewhere(before: World) -> World:
    """A replica in another directory."""
    world = World(clock=before.clock, broker=before.broker, has_state=True, exactly_once=before.exactly_once).start(P0)
    world.turn_for(1.0)
    return world


def stop(world: World) -> World:
    world.signals.stop_asked = True
    world.worker.run()
    return world


def some(first: int, count: int = 20, value: float = 1.0) -> list[Any]:
    return [of(at, value, key=b"%d" % (at % 10)) for at in range(first, first + count)]


def read_from(world: World) -> list[Extent | None]:
    return [extent for _, extent in world.restorer.begun]


@both
def test_the_next_start_reads_what_came_behind(*, exactly_once: bool) -> None:
    """It reads only the records of other replicas behind this process's end."""
    first = keeping(exactly_once=exactly_once)
    served(first, *some(0))
    stop(first)
    other = elsewhere(first)
    served(other, *some(20))
    stop(other)

    again = keeping(first)

    assert first.events.left_behind == [10]
    written = 10 if exactly_once else 20
    assert read_from(again) == [Extent(written, again.restorer.begun[0][1].known_at)]  # type: ignore[union-attr]
    assert in_memory(again) == kept(again) == {b"%d" % key: 4.0 for key in range(10)}
    served(again, *some(40))
    assert answers(again)[f"{P0}/59"] == [6.0]


def test_a_process_that_lost_its_partitions_unknowingly_does_not_count_what_others_wrote() -> None:
    """It hung, and stops before it hears of the loss: its last commit is refused."""
    first = begun()
    other = elsewhere(first)
    served(other, *some(20))
    stop(other)
    first.source.commit_fate = lambda: CommitFate(is_taken=False)

    again = keeping(stop(first))

    assert read_from(again) == [Extent(0, again.restorer.begun[0][1].known_at)]  # type: ignore[union-attr]
    assert in_memory(again) == kept(again) == {b"%d" % key: 4.0 for key in range(10)}


def test_a_group_that_does_not_answer_is_not_waited_for() -> None:
    """Then the offsets from the restore count, as they do if the changelog's end is unknown."""
    first = begun()
    first.source.commit_fate = lambda: CommitFate(heard_after=None)
    stop(first)
    second = keeping(first)
    assert read_from(second)[0] is not None

    second.restorer.is_deaf = True
    served(second, *some(20))
    third = keeping(stop(second))

    assert [extent and extent.next_offset for extent in read_from(third)] == [10]
    assert in_memory(third) == kept(third)


def test_a_second_signal_leaves_nothing() -> None:
    """There is no time for it, and the log says so."""
    first = begun()
    first.signals.hurry_asked = True
    stop(first)

    assert first.events.left_behind == ["there was not the time; raise WORKER_DELIVERY__DRAIN_TIMEOUT_S"]
    assert read_from(keeping(first)) == [None]


@pytest.mark.parametrize("how", ["revoke", "lose"])
def test_a_partition_that_left_before_the_stop_is_not_kept(how: str) -> None:
    """Its next owner writes on, and may stop before this process begins again."""
    first = begun()
    getattr(first.source, how)(P0)
    first.turn_for(0.1)

    again = keeping(stop(first))

    assert first.events.left_behind == [0]
    assert read_from(again) == [None]
    assert in_memory(again) == kept(again) == {b"%d" % key: 2.0 for key in range(10)}


def test_what_a_transaction_took_back_is_not_kept() -> None:
    """A partition that was rewound and has brought nothing since has uncommitted states."""
    first = begun()
    first.key_states.rewind([P0])

    again = keeping(stop(first))

    assert first.events.left_behind == [0]
    assert read_from(again) == [None]


def test_what_is_too_old_is_thrown_away_when_its_partition_comes() -> None:
    """A key that was forgotten meanwhile would come back, since its tombstone may be gone."""
    first = stop(begun())
    other = elsewhere(first)
    served(other, of(20, 1.0, key=b"0", state="delete"))
    stop(other)
    first.broker.compact(P0)
    first.clock.now += 86_400.0

    again = keeping(first)

    assert [partition for partition, _ in again.events.thrown] == [P0]
    assert "delete.retention.ms" in again.events.thrown[0][1]
    assert in_memory(again) == kept(again) == {b"%d" % key: 2.0 for key in range(1, 10)}


@pytest.mark.parametrize(
    ("extent", "why"),
    [
        (Extent(10, AT), None),
        (Extent(5, AT), None),
        (Extent(4, AT), "it reaches to offset 4, and the changelog goes from 5 to 10"),
        (Extent(11, AT), "it reaches to offset 11, and the changelog goes from 5 to 10"),
        (Extent(10, AT - 89), None),
        (Extent(10, AT - 90), "it is 90 s old, and the changelog keeps for 100 s"),
        (Extent(10, AT + 1), "it is -1 s old, and the changelog keeps for 100 s"),
    ],
)
def test_a_copy_is_used_within_the_changelog_and_its_memory(extent: Extent, why: str | None) -> None:
    """It must lie within the changelog's offsets, and be younger than tombstones are kept; never from the future."""
    found = why_not(extent, 5, 10, AT, retention=100.0)

    assert found is None if why is None else found is not None and found.startswith(why)


def test_at_least_once_a_copy_older_than_what_comes_again_is_thrown_away() -> None:
    """A replica wrote the key twice and was killed before the second commit; then the first was compacted."""
    first = keeping()
    served(first, *some(0))
    stop(first)
    other = elsewhere(first)
    served(other, of(20, 100.0, key=b"0"))
    other.source.commit_fate = lambda: CommitFate(is_taken=False)
    other.broker.append(of(21, 1000.0, key=b"0"))
    other.turn_for(0.5)
    assert kept(other)[b"0"] == 1102.0
    other.broker.compact(P0)

    again = keeping(first)
    again.turn_for(1.0)

    assert again.events.thrown == [(P0, "doubtful")]
    assert answers(again)[f"{P0}/21"] == "error"  # the state before it is gone, as in a full restore
    assert in_memory(again) == kept(again)


FATES = [TransactionFate(), TransactionFate(is_committed=False, failure="refused"), TransactionFate(failure="in doubt")]
moves = st.sampled_from(["stop", "kill", "stop and serve elsewhere", "stop and kill elsewhere"])
portions = st.tuples(st.integers(0, 12), moves, st.integers(0, 12), st.booleans())


class Requests:
    """Requests one after the other, of five keys, each deleted at times, and the states that they leave."""

    def __init__(self, fates: list[TransactionFate]) -> None:
        self.states: dict[bytes, float] = {}
        self._fates = iter(fates)
        self._offset = 0

    def serve(self, world: World, count: int) -> None:
        world.transactions.fate = lambda: next(self._fates, TransactionFate())
        served(world, *[self._next() for _ in range(count)])

    def _next(self) -> Record:
        at, self._offset = self._offset, self._offset + 1
        key, is_deleted = b"%d" % (at % 5), at % 11 == 10
        self.states[key] = self.states.get(key, 0.0) + at
        if is_deleted:
            del self.states[key]
        return of(at, float(at), key=key, state="delete" if is_deleted else None)


@given(
    portions=st.lists(portions, min_size=1, max_size=4),
    fates=st.lists(st.sampled_from(FATES), max_size=4),
    exactly_once=st.booleans(),
)
def test_whatever_happens_in_between_states_are_those_of_a_serial_replay(
    portions: list[tuple[int, str, int, bool]], fates: list[TransactionFate], *, exactly_once: bool
) -> None:
    """Stops and kills in that directory, other replicas in between, and a compacted changelog."""
    world, requests = keeping(exactly_once=exactly_once), Requests(fates)
    for mine, move, theirs, is_compacted in portions:
        requests.serve(world, mine)
        if move != "kill":
            stop(world)
        if "elsewhere" in move:
            other = elsewhere(world)
            requests.serve(other, theirs)
            if "serve" in move:
                stop(other)
        if is_compacted and exactly_once:
            world.broker.compact(P0, with_tombstones=False)
        world = keeping(world)
        assert in_memory(world) == kept(world) == requests.states


def test_a_copy_knows_which_requests_it_has_applied() -> None:
    """Exactly once, with a lost group offset, no record of the changelog is read that would tell it."""
    first = stop(begun())
    first.broker.committed.pop(P0)

    assert first.store is not None
    again: dict[str, Any] = {"store": first.store.reopened(), "most_in_memory": 2, "keeps": True}
    second = World(clock=first.clock, broker=first.broker, has_state=True, exactly_once=True, **again).start(P0)
    with pytest.raises(BadConfiguration, match="--to-offset 20"):
        second.turn_for(1.0)

    assert read_from(second)[0] is not None


def test_a_disk_that_fails_at_the_end_is_said_and_fails_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is committed by then."""
    first = begun()
    assert first.store is not None

    def fails(*_: object) -> bool:
        raise BadConfiguration("the disk is full")

    monkeypatch.setattr(first.store, "keep", fails)
    stop(first)

    assert first.events.left_behind == ["the disk is full"]
