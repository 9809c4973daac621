"""A worker among fakes with states in an outside store: answers and states equal a serial replay's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.builders import NONSENSE, POISON, STATE, World
from tests.chunks import P0, P1
from tests.fakes import FakeOutsideStore
from tests.states import state
from tests.unit.state.test_in_the_loop import answers, name, of, served
from worker.core.batching.back_pressure import Bounds
from worker.core.failures import BadConfiguration
from worker.core.records import Partition
from worker.state.layout import HEAD_BYTES
from worker.state.outside_states import NothingToRestore
from worker.state.outside_values import FORGOTTEN, OutsideValues, source_of

joined = pytest.mark.parametrize("joins", [False, True])


def world(*partitions: Partition, **more: Any) -> World:
    return World(has_state=True, is_outside=True, **more).start(*(partitions or (P0,)))


def next_world(before: World, **more: Any) -> World:
    """The worker's successor, on its broker and store, after the process died."""
    store = the_store(before)
    before.sink.lost_power = store.is_lost = True
    return World(
        has_state=True, is_outside=True, broker=before.broker, clock=before.clock, outside=store, **more
    ).start(P0)


def the_store(world: World) -> FakeOutsideStore:
    assert world.outside is not None
    return world.outside


def kept(world: World) -> dict[bytes, float]:
    """The states that other services read."""
    values = the_store(world).values
    return {
        key: float(np.frombuffer(value[-4:], "<f4")[0]) for key, value in values.items() if not value[9] & FORGOTTEN
    }


def stored(offset: int, value: float, partition: Partition = P0, used: int = -1) -> bytes:
    """A state in the form that the store holds."""
    rows = STATE.written(np.array([offset]), np.array([used]), np.zeros(1), [np.array([[value]], "<f4")])
    return OutsideValues.written(partition, rows[0])


@joined
def test_states_come_from_the_store_and_go_there(*, joins: bool) -> None:
    """One read brings all that are missing; the store is not asked for a state in memory."""
    w = world(joins=joins)
    the_store(w).values[b"b"] = stored(-1, 100)

    found = served(w, of(0, 1, key=b"a"), of(1, 2, key=b"b"), of(2, 3, key=b"c"), of(3, 4, key=b"a"))

    assert found == {name(0): [1], name(1): [102], name(2): [3], name(3): [5]}
    assert kept(w) == {b"a": 5, b"b": 102, b"c": 3}
    assert sorted(the_store(w).reads[0]) == [b"a", b"b", b"c"]
    assert len(the_store(w).reads) == 1
    assert w.broker.committed[P0] == 4


def test_an_offset_is_committed_when_its_state_is_stored() -> None:
    """An acknowledged answer is not enough. A request that leaves no state waits for no store."""
    w = world()
    served(w, of(0, 1, key=b"a"))
    the_store(w).away()

    w.broker.append(of(1, 2, key=b"a", state="read"), of(2, 2, key=b"a"))
    w.turn_for(2.0)

    assert answers(w) == {name(0): [1], name(1): [3], name(2): [3]}
    assert w.broker.committed[P0] == 2
    the_store(w).back()
    w.turn_for(1.0)
    assert w.broker.committed[P0] == 3
    assert w.events.troubles == ["it is away", None]


def test_a_store_that_is_away_is_back_pressure() -> None:
    """The bounds hold, nothing is answered wrongly, and all requests are answered when the store is back."""
    w = world(bounds=Bounds(records=8, rows=1000, size=1 << 20), joins=True)
    the_store(w).away()
    w.broker.append(*(of(n, 1, key=b"%d" % (n % 20)) for n in range(60)))

    w.turn_for(5.0)

    assert answers(w) == {}
    assert 8 <= w.ledger.records < 60
    assert (w.fetch.waiting > 0, w.fetch.backlog) == (True, 0)
    the_store(w).back()
    w.turn_for(5.0)
    assert kept(w) == {b"%d" % n: 3 for n in range(20)}
    assert w.fetch.waiting == 0


@joined
def test_what_was_answered_is_not_applied_again(*, joins: bool) -> None:
    """A process died between the store's acknowledgement and the commit: its successor answers nothing twice."""
    first = world(joins=joins, commit_interval=100.0)
    first.broker.append(*(of(n, 1, key=b"%d" % (n % 3)) for n in range(6)), of(6, 1, 2, key=b"1"))
    first.turn_for(2.0)
    assert not first.ledger.awaits_delivery()
    assert not first.broker.committed.get(P0)
    before = answers(first)
    count = len(first.broker.answers)

    w = next_world(first, joins=joins)
    found = served(w, of(7, 5, key=b"1"), of(8, 5, key=b"2"))

    assert {source: found[source] for source in before} == before
    assert len(w.broker.answers) == count + 2
    assert (found[name(7)], found[name(8)]) == ([10], [7])
    assert kept(w) == {b"0": 2, b"1": 10, b"2": 7}
    assert sum(n for _, n in w.events.applied) == 7
    assert w.broker.committed[P0] == 9


@pytest.mark.parametrize("state", ["read", "reset"])
def test_what_was_answered_before_the_last_state_was_written_is_not_answered_again(state: str) -> None:
    """This holds for each use of the state, and for a failure: the next state says so."""
    first = world(commit_interval=100.0)
    first.broker.append(of(0, 1), of(1, POISON), of(2, 7, state=state), of(3, NONSENSE), of(4, 2))
    first.turn_for(3.0)
    count = len(first.broker.answers)

    w = next_world(first)
    found = served(w, of(5, 1))

    expected = 10 if state == "reset" else 4
    assert found[name(5)] == [expected]
    assert len(w.broker.answers) == count + 1


def test_a_key_that_was_forgotten_remembers_by_which_request() -> None:
    """Earlier requests that are read again must not begin anew; later ones do."""
    first = world(commit_interval=100.0)
    first.broker.append(of(0, 1), of(1, 2, state="delete"))
    first.turn_for(2.0)
    assert kept(first) == {}

    w = next_world(first)
    found = served(w, of(2, 5), of(3, 6))

    assert found == {name(0): [1], name(1): [3], name(2): [5], name(3): [11]}
    assert len([m for m in w.broker.answers if m.topic == "responses"]) == 4
    assert kept(w) == {b"k": 11}


def test_a_key_that_was_forgotten_begins_anew_in_memory() -> None:
    """This holds before the store knows of it. Where keys without a state are refused, this key counts as one."""
    w = world(missing="refuse")
    the_store(w).values[b"k"] = stored(-1, 1)

    found = served(w, of(0, 2, state="delete"), of(1, 3), of(2, 4, state="reset"), of(3, 5))

    assert found == {name(0): [3], name(1): "error", name(2): [4], name(3): [9]}


def test_a_state_of_another_partition_is_taken_as_it_is() -> None:
    """A topic that gets partitions moves keys, and offsets of two partitions cannot be compared."""
    w = world()
    the_store(w).values[b"k"] = stored(1000, 5, P1)
    the_store(w).values[b"gone"] = OutsideValues(STATE).forgotten(P1, state(1, offset=1000, time=-1)[:HEAD_BYTES])

    found = served(w, of(0, 1), of(1, 1, key=b"gone"))

    assert found == {name(0): [6], name(1): [1]}
    assert kept(w) == {b"k": 6, b"gone": 1}


ANOTHERS = source_of(P0) + bytes([1, 0, 0, 0]) + b"else" + b"\0" * 20  # of another model


def test_a_store_of_another_models_states_ends_the_worker() -> None:
    """Its settings do not fit, and every key would begin anew."""
    w = world()
    the_store(w).values[b"k"] = ANOTHERS
    w.broker.append(of(0, 1))

    with pytest.raises(BadConfiguration, match="KEY_PREFIX"):
        w.turn_for(1.0)


@joined
@pytest.mark.parametrize("value", [b"", b"hello", b"\0" * 32, source_of(P0) + b"\0" * 28, ANOTHERS])
def test_a_key_with_a_foreign_value_begins_anew(value: bytes, *, joins: bool) -> None:
    """The value is counted and overwritten; no other key is affected."""
    w = world(joins=joins)
    the_store(w).values |= {b"good": stored(-1, 5), b"k": value}
    served(w, of(0, 1, key=b"good"))

    found = served(w, of(1, 1), of(2, 1, key=b"new"), of(3, 1, key=b"good"), of(4, 1, 2))

    assert [found[name(n)] for n in range(5)] == [[6], [1], [1], [7], [2, 4]]
    assert w.events.passed_over == [(P0, 1)]
    assert kept(w) == {b"good": 7, b"new": 1, b"k": 4}


def test_the_log_says_once_that_the_store_is_away() -> None:
    """The store may give its reason more often."""
    w = world()
    for why in ("refused", "timed out", None):
        the_store(w).trouble = why
        w.turn()

    assert w.events.troubles == ["refused", None]


def test_memory_holds_the_keys_used_lately() -> None:
    """It also holds keys that are needed or not stored yet; a state that left memory comes back unchanged."""
    w = world(most_in_memory=4)
    for offset in range(440):
        w.broker.append(of(offset, 1, key=b"%d" % (offset % 40)))
        if offset % 4 != 2:
            w.turn_for(0.05)

    assert kept(w) == {b"%d" % n: 11 for n in range(40)}
    assert w.key_states.keys < 20
    assert w.key_states.loads > 0
    the_store(w).away()
    w.broker.append(*(of(440 + n, 1, key=b"%d" % n) for n in range(40)))
    w.turn_for(1.0)
    the_store(w).back()
    w.turn_for(2.0)
    assert kept(w) == {b"%d" % n: 12 for n in range(40)}


def test_a_state_that_is_not_stored_stays_in_memory() -> None:
    """This holds for any number of later keys: the store would give the older state."""
    w = world(most_in_memory=4)
    w.sink.delay = lambda _: 1.0
    for at in range(5):
        w.broker.append(*(of(at * 8 + n, 1, key=b"k" if n == at == 0 else b"%d-%d" % (at, n)) for n in range(8)))
        w.turn_for(0.1)

    assert served(w, of(40, 1))[name(40)] == [2]


def test_a_partition_that_comes_back_is_read_anew() -> None:
    """States in memory, held or asked for when it left are forgotten: another replica had the partition meanwhile."""
    w = world()
    served(w, of(0, 1))
    the_store(w).seconds = 0.05
    w.broker.append(of(1, 1, key=b"other"))
    w.turn_for(0.004)
    w.source.revoke(P0)
    w.turn()
    assert w.fetch.waiting == 0
    the_store(w).values[b"k"] = stored(5, 100)
    w.source.assign(P0)

    found = served(w, *(of(n, 1) for n in range(2, 8)))

    assert found[name(6)] == [101]
    assert found[name(7)] == [102]
    assert name(5) not in found


def test_a_drain_finishes_what_waits_for_its_state() -> None:
    """The store still answers then."""
    w = world()
    the_store(w).seconds = 0.05
    w.broker.append(of(0, 1), of(1, 2, key=b"b"))
    w.clock.at(w.clock.now + 0.02, lambda: setattr(w.signals, "stop_asked", True))

    w.worker.run()

    assert kept(w) == {b"k": 1, b"b": 2}
    assert w.broker.committed[P0] == 2


def test_a_state_waits_for_the_dead_letter_of_an_earlier_request() -> None:
    """The state proves that nothing is owed for that request either; the later answer does not wait."""
    w = world()
    w.sink.delay = lambda message: 5.0 if message.topic == "dead-letters" else 0.002
    w.broker.append(of(0, POISON), of(1, 2))

    w.turn_for(2.0)

    assert answers(w) == {name(0): "error", name(1): [2]}
    assert kept(w) == {}
    w.turn_for(5.0)
    assert kept(w) == {b"k": 2}


def test_a_clean_end_leaves_nothing_to_the_next_process() -> None:
    """The next process gets all states from the store."""
    w = world()
    served(w, of(0, 1))

    assert w.key_states.kept is None
    assert not NothingToRestore().ends([P0], 1.0)
