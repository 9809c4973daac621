"""A worker among fakes whose model sums the values of each key: its answers and states equal a serial replay's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.builders import FAULTY, NONSENSE, POISON, SPOILT, STATE, World
from tests.chunks import P0, P1, record
from tests.fakes import CHANGELOG, Clock, CommitFate, FakeStore, TransactionFate
from worker.core.batching.back_pressure import Bounds
from worker.core.failures import BadConfiguration
from worker.core.records import Message, Partition, Record
from worker.loop.conduct import POLL_SLICE, SHORTEST_WAIT
from worker.loop.worker import REPORT_WAIT
from worker.state.restoring import Restoration

both = pytest.mark.parametrize("exactly_once", [False, True])
P2 = Partition("requests", 2)
joined = pytest.mark.parametrize("joins", [False, True])


def world(*partitions: Partition, **more: Any) -> World:
    """A worker with state, whose partitions are restored."""
    return World(has_state=True, **more).start(*(partitions or (P0,)))


def of(offset: int, *values: float, key: bytes = b"k", state: str | None = None, at: float | None = None) -> Record:
    """A request of these rows."""
    found = record(offset, *values, key=key, at=at)
    return found if state is None else found._replace(headers=(("state", state.encode()),))


def answers(world: World) -> dict[str, list[float] | str]:
    """The last answer to each source: its rows, or "error"."""
    found: dict[str, list[float] | str] = {}
    for message in world.broker.answers:
        if message.topic != "responses":
            continue
        headers = {name: (value or b"").decode() for name, value in message.headers}
        is_ok = headers["status"] == "ok"
        found[headers["source"]] = np.frombuffer(message.value or b"", "<f4").tolist() if is_ok else "error"
    return found


def kept(world: World) -> dict[bytes, float]:
    """The states at the end of the changelog."""
    states: dict[bytes, float] = {}
    for message in world.broker.answers:
        if message.topic == CHANGELOG:
            states.pop(message.key or b"", None)
            if message.value is not None:
                states[message.key or b""] = float(np.frombuffer(message.value[-4:], "<f4")[0])
    return states


def in_memory(world: World) -> dict[bytes, float]:
    """The state that the next request of each key would run on, in memory or in the store."""
    found = dict[bytes, int]()
    for partition, ours in world.key_states._slots._keys.items():
        stored = {} if world.store is None else world.store.slots.get(partition, {})
        found |= stored | ours.older | ours.lately
    return {key: float(world.key_states._slabs.states[0][slot, 0]) for key, slot in found.items()}


def served(world: World, *records: Record) -> dict[str, list[float] | str]:
    world.broker.append(*records)
    for _ in range(20):
        world.turn_for(1.0)
        if not world.ledger.records:
            break
    assert not world.ledger.records
    return answers(world)


def serve_unheard(world: World, *records: Record) -> None:
    """Answer these records. The answers and states get through, and the commits do not."""
    world.source.commit_fate = lambda: CommitFate(is_taken=False, heard_after=None)
    world.broker.append(*records)
    world.turn_for(1.0)


def name(offset: int, partition: Partition = P0) -> str:
    return f"{partition}/{offset}"


@both
@joined
def test_requests_of_one_key_run_one_after_the_other(*, exactly_once: bool, joins: bool) -> None:
    """Each starts from the state that the one before left; other keys run at the same time."""
    w = world(exactly_once=exactly_once, joins=joins)

    found = served(w, of(0, 1), of(1, 2), of(2, 10, key=b"b"), of(3, 3), of(4, 20, key=b"b"))

    assert found == {name(0): [1], name(1): [3], name(2): [10], name(3): [6], name(4): [30]}
    assert kept(w) == in_memory(w) == {b"k": 6, b"b": 30}


def test_a_full_worker_waits_for_no_report_while_a_key_has_its_next_request() -> None:
    """It was due when the one before it had its outcome."""
    w = world(bounds=Bounds(records=4, rows=1000, size=1 << 20))
    w.sink.delay = lambda _: 3600.0
    w.broker.append(*[of(n, 1) for n in range(4)])
    w.turn_until(lambda: in_memory(w))
    began = w.clock.now

    w.turn_until(lambda: in_memory(w) == {b"k": 4})

    assert w.clock.now - began < 3 * REPORT_WAIT


@pytest.mark.parametrize("bad", [POISON, FAULTY, NONSENSE, SPOILT])
@joined
def test_a_request_that_fails_leaves_the_state_as_it_was(*, bad: float, joins: bool) -> None:
    """This holds for one row, and in the middle of a sequence; neighbours and later requests get their results."""
    w = world(joins=joins)

    found = served(w, of(0, 1), of(1, bad), of(2, 2, bad, 3), of(3, 5, key=b"b"), of(4, 4))

    assert found == {name(0): [1], name(1): "error", name(2): "error", name(3): [5], name(4): [5]}
    assert kept(w) == in_memory(w) == {b"k": 5, b"b": 5}


@joined
@pytest.mark.parametrize("is_committed", [False, True])
def test_what_a_transaction_took_back_is_taken_back_here(*, joins: bool, is_committed: bool) -> None:
    """This includes a commit that was in doubt and had succeeded: then nothing is applied twice."""
    w = world(P0, P1, exactly_once=True, joins=joins)
    served(w, of(0, 1), of(1, 100, key=b"b"), of(2, 7, key=b"gone"))
    fates = iter([TransactionFate(is_committed=is_committed, failure="no answer")])
    w.transactions.fate = lambda: next(fates, TransactionFate())

    more = [record(0, 9, partition=P1, key=b"p1"), record(1, 9, partition=P1, key=b"p1")]
    found = served(w, of(3, 2), of(4, 3), of(5, 1, key=b"new"), of(6, 1, key=b"gone", state="delete"), of(7, 4), *more)

    assert w.events.counted["rewound"]
    assert [found[name(n)] for n in range(8)] == [[1], [100], [7], [3], [6], [1], [8], [10]]
    assert found[name(1, P1)] == [18]
    assert kept(w) == in_memory(w) == {b"k": 10, b"b": 100, b"new": 1, b"p1": 18}


@both
@pytest.mark.parametrize("how", ["revoke", "lose"])
def test_states_leave_with_their_partition_and_come_back_with_it(*, exactly_once: bool, how: str) -> None:
    """No record of it is taken before its states are there."""
    w = world(P0, P1, exactly_once=exactly_once)
    served(w, of(0, 1), record(0, 5, partition=P1, key=b"p1"))
    getattr(w.source, how)(P0)
    w.turn(3)
    assert in_memory(w) == {b"p1": 5}

    w.restorer.is_slow, w.restorer.left = True, 7
    w.source.assign(P0)
    w.broker.append(of(1, 2))
    w.turn_for(0.5)
    assert name(1) not in answers(w)
    assert (w.key_states.restoring, w.key_states.left_to_restore) == (1, 7)
    w.restorer.is_slow = False
    w.turn_for(0.5)

    assert (w.key_states.restoring, w.key_states.left_to_restore) == (0, 0)
    assert answers(w)[name(1)] == [3]
    assert w.events.restored_keys[-1][:2] == (P0, 1)


def test_a_partition_that_leaves_while_it_is_restored_is_not_restored() -> None:
    """States found for it then belong to an earlier assignment."""
    w = world()
    served(w, of(0, 1))
    w.source.revoke(P0)
    w.turn(2)
    w.restorer.is_slow = True
    w.source.assign(P0)
    w.turn(2)
    w.source.revoke(P0)
    w.turn(2)
    w.restorer.is_slow = False
    w.source.assign(P0)

    assert served(w, of(1, 2))[name(1)] == [3]
    assert len(w.events.restored_keys) == 2


@joined
def test_at_least_once_what_comes_again_is_applied_to_what_was_before_it(*, joins: bool) -> None:
    """The successor of a killed worker begins with the states as of the committed offset."""
    first = world(joins=joins)
    served(first, of(0, 1), of(1, 5, key=b"b"))
    committed = dict(first.broker.committed)
    serve_unheard(first, of(2, 2), of(3, 3), of(4, 1, key=b"b", state="delete"), of(5, 9, key=b"new"))
    assert first.broker.committed == committed

    second = World(has_state=True, joins=joins, broker=first.broker).start(P0)
    second.turn_for(1.0)

    found = answers(second)
    assert [found[name(n)] for n in range(6)] == [[1], [5], [3], [6], [6], [9]]
    assert kept(second) == in_memory(second) == {b"k": 6, b"new": 9}


def test_at_least_once_without_the_state_before_a_request_is_not_applied_twice() -> None:
    """The changelog was compacted: the repeated request is refused, and the state already includes it."""
    first = world()
    served(first, of(0, 1))
    serve_unheard(first, of(1, 2))
    states = [message for message in first.broker.answers if message.topic == CHANGELOG]
    first.broker.answers = [message for message in first.broker.answers if message is not states[0]]

    second = World(has_state=True, broker=first.broker).start(P0)
    second.turn_for(1.0)
    assert "cannot be repeated" in second.events.rejections[-1].message
    assert served(second, of(2, 3), of(3, 1, key=b"b"))[name(2)] == [6]
    assert answers(second)[name(3)] == [1]


@pytest.mark.parametrize("is_written_again", [False, True])
def test_at_least_once_a_key_that_was_deleted_is_not_answered_from_nothing(*, is_written_again: bool) -> None:
    """Only the tombstone is left in the changelog: earlier requests come again, and their states are gone."""
    first = world()
    served(first, of(0, 1))
    again = [of(3, 8)] if is_written_again else []
    serve_unheard(first, of(1, 2), of(2, 4, state="delete"), *again)
    states = [message for message in first.broker.answers if message.topic == CHANGELOG]
    first.broker.answers = [message for message in first.broker.answers if message not in states[:2]]

    second = World(has_state=True, broker=first.broker).start(P0)
    second.turn_for(1.0)

    found = answers(second)
    assert (found[name(1)], found[name(2)]) == ("error", "error")
    assert all("cannot be repeated" in refused.message for refused in second.events.rejections)
    later = len(again) + 3
    assert served(second, of(later, 3), of(later + 1, 1, key=b"b"))[name(later)] == ([11] if again else [3])
    assert answers(second)[name(later + 1)] == [1]


def test_a_state_is_forgotten_when_it_was_not_used_for_its_time() -> None:
    """The requests' timestamps decide; a tombstone follows when newer requests come."""
    w = world(ttl=10.0)

    found = served(w, of(0, 1, at=100.0), of(1, 2, at=105.0), of(2, 9, key=b"b", at=105.0), of(3, 4, at=115.5))
    assert [found[name(n)] for n in range(4)] == [[1], [3], [9], [4]]
    assert kept(w) == {b"k": 4, b"b": 9}

    for at in range(3):
        served(w, of(4 + at, 1, key=b"c", at=200.0))
    assert kept(w) == in_memory(w) == {b"c": 3}
    assert served(w, of(7, 5, key=b"c"))[name(7)] == [8]  # a request without a timestamp forgets nothing


def test_a_state_is_as_old_as_its_partition_says() -> None:
    """Newer requests of another partition forget nothing: older ones of its own may still come."""
    w = world(P0, P1, ttl=10.0)
    served(w, record(0, 1.0, key=b"k", partition=P1, at=100.0))

    served(w, *[of(at, 1, key=b"c", at=2000.0) for at in range(3)])

    assert in_memory(w) == {b"k": 1, b"c": 3}


@pytest.mark.parametrize("order", ["partition", "key"])
def test_a_state_that_a_request_waits_for_is_not_forgotten(order: str) -> None:
    """In a backlog, much newer requests of other keys run before it."""
    w = world(ttl=10.0, order=order)

    found = served(w, of(0, 1, at=100.0), of(1, 2, at=105.0), of(2, 4, at=110.0), of(3, 1, key=b"b", at=500.0))

    assert [found[name(n)] for n in range(4)] == [[1], [3], [7], [1]]


def test_a_tombstone_follows_all_requests_that_are_older() -> None:
    """This includes waiting requests: those behind the tombstone are committed later, and may come again."""
    w = world(ttl=10.0)
    waiting = [of(n, 1, key=b"h", at=100.0) for n in range(1, 6)]
    newer = [of(7 + n, 1, key=b"%d" % n, at=500.0) for n in range(3)]

    served(w, of(0, 1, at=100.0), *waiting, of(6, 2, at=105.0), *newer)
    for n in range(10, 13):
        served(w, of(n, 1, key=b"c", at=500.0))

    assert [m.value is None for m in w.broker.answers if m.topic == CHANGELOG and m.key == b"k"] == [False, False, True]


def test_a_tombstone_says_as_of_which_request_it_is() -> None:
    """Where answers leave by key, this is not the request it goes with, and earlier requests may come again."""
    w = world(ttl=10.0, order="key")
    waiting = [of(n, 1, key=b"h", at=100.0) for n in range(1, 6)]
    newer = [of(7 + n, 1, key=b"%d" % n, at=500.0) for n in range(3)]
    later = [of(10 + n, 1, key=b"h", at=100.0) for n in range(3)]

    served(w, of(0, 1, at=100.0), *waiting, of(6, 2, at=105.0), *newer, *later, of(13, 1, key=b"3", at=500.0))

    changes = [m for m in w.broker.answers if m.topic == CHANGELOG]
    [at] = [at for at, m in enumerate(changes) if m.key == b"k" and m.value is None]
    [(_, offset)] = changes[at].headers
    assert int(offset or b"") == 13
    assert [m.key for m in changes[at + 1 :]] == [b"h"] * 3


def test_a_state_of_requests_that_come_again_makes_no_other_too_old() -> None:
    """At least once, the requests before it come again, too."""
    first = world(ttl=1000.0, clock=Clock(3000.0))
    served(first, of(0, 1, at=100.0), of(1, 1, key=b"b", at=100.0))
    serve_unheard(first, of(2, 2, key=b"b", at=900.0), of(3, 2, at=1050.0), of(4, 4, key=b"b", at=1700.0))
    of_b = [m for m in first.broker.answers if m.topic == CHANGELOG and m.key == b"b"]
    first.broker.answers = [message for message in first.broker.answers if message not in of_b[:-1]]  # compacted

    bounds = Bounds(records=1, rows=1000, size=1 << 20)
    second = World(has_state=True, ttl=1000.0, clock=Clock(3000.0), broker=first.broker, bounds=bounds).start(P0)

    assert served(second)[name(3)] == [3]


@both
def test_a_timestamp_in_the_future_makes_no_state_too_old(*, exactly_once: bool) -> None:
    """The timestamp counts as now: no key's state is forgotten, even after a restore."""
    w = world(ttl=10.0, exactly_once=exactly_once)
    now = w.clock.now

    found = served(w, of(0, 1, at=now - 5), of(1, 2, key=b"b", at=now - 5), of(2, 3, key=b"b", at=1000 * now))
    served(w, *(of(3 + n, 1, key=b"c", at=now) for n in range(3)))
    w.source.revoke(P0)
    w.turn(2)
    w.source.assign(P0)
    served(w, *(of(6 + n, 1, key=b"c", at=now) for n in range(3)))

    assert found[name(2)] == [5]
    assert kept(w) == in_memory(w) == {b"k": 1, b"b": 5, b"c": 6}


@pytest.mark.parametrize("in_store", [False, True])
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_state_that_was_too_old_comes_back_with_the_transaction(*, in_store: bool, is_committed: bool) -> None:
    """Newer requests of the transaction expired the state; earlier ones are read again and find it."""
    store: dict[str, Any] = {"store": FakeStore(), "most_in_memory": 1} if in_store else {}
    w = world(ttl=10.0, exactly_once=True, commit_interval=60.0, **store)
    served(w, of(0, 1, at=100.0))
    inside: list[list[bytes | None]] = []

    def fate() -> TransactionFate:
        inside.append([message.key for message in w.transactions.inside if message.value is None])
        is_first = len(inside) == 1
        return TransactionFate(is_committed=is_committed, failure="no answer") if is_first else TransactionFate()

    w.transactions.fate = fate

    found = served(w, of(1, 2, at=105.0, state="read"), *(of(2 + n, 1, key=b"b", at=300.0) for n in range(5)))

    assert inside[0] == [b"k"]
    assert w.events.counted["rewound"]
    assert found[name(1)] == [3]
    served(w, of(7, 1, key=b"b", at=300.0), of(8, 1, key=b"b", at=300.0))
    assert in_memory(w) == kept(w) == {b"b": 7}


@both
def test_a_state_is_not_forgotten_before_its_own_answer_has_left(*, exactly_once: bool) -> None:
    """Its request came late. A tombstone before it would leave the state in the changelog, and not in the worker."""
    w = world(ttl=10.0, exactly_once=exactly_once)
    served(w, of(0, 1, key=b"b", at=300.0))

    served(w, *(of(n, 1, key=b"h", at=300.0) for n in range(1, 5)), of(5, 1, at=100.0))

    assert in_memory(w) == kept(w)


def test_a_key_that_was_deleted_is_gone_after_a_restore() -> None:
    """A key that was new and deleted in an aborted transaction leaves nothing, too."""
    w = world(exactly_once=True, ttl=1000.0)
    served(w, of(0, 1), of(1, 1, key=b"b"), of(2, 1, state="delete"), of(3, 1, key=b"b"))
    w.source.revoke(P0)
    w.turn(2)
    compacted = [m for m in w.broker.answers if m.topic != CHANGELOG or m.key != b"k" or m.value is None]
    w.broker.answers = compacted
    w.source.assign(P0)
    served(w, of(4, 1, key=b"c"))
    assert in_memory(w) == {b"b": 2, b"c": 1}

    fates = iter([TransactionFate(is_committed=False, failure="refused")])
    w.transactions.fate = lambda: next(fates, TransactionFate())
    served(w, of(5, 1, key=b"d"), of(6, 1, key=b"d", state="delete"))

    assert in_memory(w) == kept(w) == {b"b": 2, b"c": 1}


def test_at_least_once_an_old_state_behind_a_newer_one_does_not_count() -> None:
    """A replica that hung writes old states behind its successor's newer ones, and behind deletions."""
    w = world()
    served(w, of(0, 1), of(1, 1, key=b"b"), of(2, 1, key=b"b", state="delete"), of(3, 1, key=b"b"), of(4, 1))
    written = [m for m in w.broker.answers if m.topic == CHANGELOG]
    w.source.revoke(P0)
    w.turn(2)
    w.broker.answers += written[:3]
    w.source.assign(P0)

    found = served(w, of(5, 1), of(6, 1, key=b"b"))

    assert (found[name(5)], found[name(6)]) == ([3], [2])


@pytest.mark.parametrize("in_store", [False, True])
@pytest.mark.parametrize("to", [None, 1])
def test_exactly_once_nothing_is_applied_twice_where_the_group_has_lost_its_offsets(
    to: int | None, *, in_store: bool
) -> None:
    """Offsets were deleted or set back. The worker ends, names all such partitions, and says how to go on."""
    first = world(P0, P1, P2, exactly_once=True)
    more = [record(at, 1, partition=at_home, key=b"%d" % at_home.number) for at in range(3) for at_home in (P1, P2)]
    served(first, of(0, 1), of(1, 2), of(2, 1, state="read"), *more)
    for partition in (P0, P1):
        first.broker.committed.pop(partition)
        first.broker.committed |= {} if to is None else {partition: to}
    answered = len(first.broker.answers)

    store: dict[str, Any] = {"store": FakeStore(), "most_in_memory": 1} if in_store else {}
    second = World(has_state=True, exactly_once=True, broker=first.broker, **store).start(P0, P1, P2)
    with pytest.raises(BadConfiguration) as refused:
        second.turn_for(1.0)

    assert f"requests/0: the request at offset 1, next {to or 0}" in str(refused.value)
    assert "--topic requests:0 --to-offset 2 --topic requests:1 --to-offset 3 --execute" in str(refused.value)
    assert len(first.broker.answers) == answered


def restoring_behind_a_lost_offset() -> World:
    """A second worker that has restored nothing yet, while its group has lost P0's offset."""
    first = world(exactly_once=True)
    served(first, of(0, 1))
    first.broker.committed.pop(P0)
    second = World(has_state=True, exactly_once=True, broker=first.broker)
    second.restorer.is_slow = True
    second.start(P0, P1)
    second.turn(2)
    return second


def test_exactly_once_a_lost_offset_is_told_where_the_others_leave_before_they_are_restored() -> None:
    """Nothing more is restored then: a worker that waited for more would hang silently."""
    second = restoring_behind_a_lost_offset()
    ours = [found for found in second.restorer._portions if found.partition == P0]
    for found in ours:
        second.key_states._restore(found)
    second.restorer._portions.clear()
    second.source.revoke(P1)

    with pytest.raises(BadConfiguration, match="requests/0: the request at offset 0, next 0"):
        second.turn(2)


@both
def test_a_foreign_record_in_a_changelog_is_passed_over(*, exactly_once: bool) -> None:
    """It is counted and named; before, it ended each worker. The keys go on from their states."""
    first = world(exactly_once=exactly_once)
    served(first, of(0, 1), of(1, 2, key=b"b"))
    others = STATE.written(np.array([9]), np.array([1]), np.zeros(1), [np.zeros((1, 1), "<f4")])[0]
    anothers = others[:4] + b"else" + others[8:]
    for value in (b"x", b"", others[:-1], others + b"x", anothers):
        first.broker.answers.append(Message(CHANGELOG, b"k", value, [], 0, 0))
    digits: list[tuple[str, bytes | None]] = [("offset", b"9" * 5000), ("head", b"x")]
    first.broker.answers.append(Message(CHANGELOG, b"never", None, digits, 0, 0))

    second = World(has_state=True, exactly_once=exactly_once, broker=first.broker).start(P0)
    found = served(second, of(2, 3), of(3, 1, key=b"b"))

    assert (found[name(2)], found[name(3)]) == ([4], [3])
    assert second.events.passed_over == [(P0, 5)]


def test_while_states_are_read_back_no_poll_waits_for_long() -> None:
    """The loop takes states over between two polls: if each poll waited fully, it would delay some thousands."""
    w = World(has_state=True)
    w.restorer.is_slow = True
    w.start(P0)
    w.turn(2)
    w.source.polls.clear()

    w.turn(10)
    assert {wait for _, wait in w.source.polls} == {SHORTEST_WAIT}

    w.restorer.is_slow = False
    w.turn(3)
    assert w.source.polls[-1][1] == POLL_SLICE


def test_a_partition_whose_states_are_sure_is_not_looked_through() -> None:
    """Another partition's states may be unsure."""
    w = world()
    w.key_states._ahead[P1] = {}

    assert served(w, of(0, 1), of(1, 2)) == {name(0): [1], name(1): [3]}


def test_a_changelog_of_another_models_states_ends_the_worker() -> None:
    """The settings do not fit. A record that is no state at all proves nothing."""
    others = STATE.written(np.array([9]), np.array([1]), np.zeros(1), [np.zeros((1, 1), "<f4")])[0]
    anothers = others[:4] + b"else" + others[8:]

    def last(*values: bytes, is_tail: bool = False) -> None:
        restoration = Restoration(P0, 1, STATE, 0, is_exact=True, is_tail=is_tail)
        restoration.states([b"k"] * len(values), values)
        restoration.last()

    last(b"x")
    last(anothers, others)
    last(anothers, is_tail=True)
    with pytest.raises(ValueError, match="other tensors"):
        last(b"x", anothers)
