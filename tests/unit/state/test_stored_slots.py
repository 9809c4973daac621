"""More states than fit into memory: those used lately stay, and a batch finds all that it asks for."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import STATE, World
from tests.chunks import P0, P1
from tests.fakes import Clock, FakeStore
from tests.unit.state.test_in_the_loop import answers, in_memory, kept, of, served
from worker.core.records import Partition
from worker.state import Extent
from worker.state.key_slots import KeySlots, NoSlotStore
from worker.state.slabs import Slabs, StateRows
from worker.stores import LocalStore

MOST = 7


def slots_of(store: FakeStore | LocalStore, most: int = MOST) -> tuple[KeySlots, Slabs]:
    slabs = Slabs(STATE, store.grow)
    return KeySlots(slabs, store, most), slabs


def write(slots: KeySlots, keys: list[bytes], value: float, partition: Partition = P0) -> None:
    """Write a value for each key, as a batch does."""
    found = dict(zip(keys, slots.find(partition, keys), strict=True))
    new = [key for key, slot in found.items() if not slot]
    found |= zip(new, slots.add(partition, new), strict=True)
    rows = StateRows([np.full((len(keys), 1), value, "<f4")], np.arange(len(keys)), np.zeros(len(keys), np.int64))
    slots.put(np.array([found[key] for key in keys]), rows)


def key(number: int) -> bytes:
    return b"key-%d" % number


def test_what_was_not_used_lately_leaves_memory() -> None:
    """The store is told the slot once, and asked in one call for a batch when the key is used again."""
    store = FakeStore()
    slots, slabs = slots_of(store)
    for number in range(MOST):
        write(slots, [key(number)], float(number))
    assert store.keys_of(P0) == 0  # there is room in memory

    write(slots, [key(MOST)], 1.0)
    write(slots, [key(1)], 10.0)
    write(slots, [key(MOST + 1)], 1.0)

    assert list(store.slots.get(P0, ())) == [key(0), key(2)]
    store.gets.clear()
    found = list(slots.find(P0, [key(number) for number in range(MOST + 3)]))
    assert [bool(slot) for slot in found] == [True] * (MOST + 2) + [False]
    assert slabs.states[0][found, 0].tolist() == [0.0, 10.0, *map(float, range(2, MOST)), 1.0, 1.0, 0.0]
    assert store.gets == [[key(0), key(2), key(MOST + 2)]]
    assert (slots.loads, slots.keys, slots.keys_of(P0)) == (2, MOST + 2, MOST + 2)
    assert NoSlotStore().get(P0, [b"k"]) == [0]


def test_a_slot_that_is_free_is_given_again() -> None:
    """This includes keys that only the store has; a deleted key is gone there, too."""
    store = FakeStore()
    slots, slabs = slots_of(store)
    for number in range(3 * MOST):
        write(slots, [key(number)], 1.0)
    used = slabs.used

    for number in range(3 * MOST):
        slots.drop(P0, key(number))
        slots.drop(P0, key(number))
    assert (slots.keys, store.slots[P0], slabs.given) == (0, {}, 0)
    write(slots, [b"other-%d" % number for number in range(3 * MOST)], 1.0)

    assert slabs.used == used


def test_a_partition_may_leave_while_its_keys_leave_memory() -> None:
    """It may also come back, and begins anew."""
    store = FakeStore()
    slots, slabs = slots_of(store)
    ours, others = [key(number) for number in range(3 * MOST)], [b"other-%d" % number for number in range(MOST)]
    write(slots, others, 1.0, P1)
    write(slots, ours[:1], 1.0)

    slots.forget(P1)
    write(slots, ours, 2.0)
    assert list(slots.find(P1, others)) == [0] * MOST
    write(slots, others, 3.0, P1)

    for partition, keys, value in ((P0, ours, 2.0), (P1, others, 3.0)):
        assert set(slabs.states[0][list(slots.find(partition, keys)), 0].tolist()) == {value}
        assert slots.keys_of(partition) == len(keys)


def test_a_clean_end_leaves_each_state_where_it_is(tmp_path: Path) -> None:
    """The directory also gets states that were only in memory; partitions not kept free their slots."""
    many, kept = [key(number) for number in range(3000)], {P0: Extent(1, 1.0)}
    with closing(LocalStore(tmp_path, {})) as store:
        slots, slabs = slots_of(store, 1024)
        for at in range(0, len(many), 100):
            write(slots, many[at : at + 100], float(at))
            write(slots, many[at : at + 100], float(at), P1)
        used = slabs.used
        assert not slots.store_all(kept, lambda: False)
        assert slots.store_all(kept, lambda: True)
        assert store.keep(kept, lambda: True)

    with closing(LocalStore(tmp_path, {})) as store:
        slots, slabs = slots_of(store, 1024)
        assert store.take(P0) == kept[P0]
        found = list(slots.find(P0, many))
        assert slabs.states[0][found, 0].tolist() == [float(at - at % 100) for at in range(len(many))]
        assert (slots.keys, slots.keys_of(P1)) == (len(many), 0)
        write(slots, many, 1.0, P1)
        assert slabs.used <= used
        assert not set(slots.find(P1, many)) & set(found)


@given(st.lists(st.tuples(st.sampled_from(["write", "drop", "read", "forget"]), st.integers(0, 11)), max_size=60))
def test_it_is_a_dictionary(calls: list[tuple[str, int]]) -> None:
    """Any sequence of writes, drops and reads gives a dictionary's results, with room for three."""
    store = FakeStore()
    slots, slabs = slots_of(store, 3)
    expected: dict[bytes, float] = {}
    for number, (call, which) in enumerate(calls):
        if call == "write":
            write(slots, [key(which)], float(number))
            expected[key(which)] = float(number)
        elif call == "drop":
            slots.drop(P0, key(which))
            expected.pop(key(which), None)
        elif call == "forget" and which == 0:
            slots.forget(P0)
            expected.clear()
        [slot] = slots.find(P0, [key(which)])
        assert (slabs.states[0][slot, 0] if slot else None) == expected.get(key(which))
        assert slots.keys == slots.keys_of(P0) == slabs.given == len(expected)
    found = list(slots.find(P0, list(expected)))
    assert slabs.states[0][found, 0].tolist() == list(expected.values())


def test_states_beyond_memory_are_served_restored_and_forgotten() -> None:
    """A worker with room for two of twenty keys serves them, and its successor restores them."""
    requests = [of(at, float(at), key=b"%d" % (at % 20)) for at in range(60)]
    world = World(has_state=True, exactly_once=True, store=FakeStore(), most_in_memory=2).start(P0)

    found = served(world, *requests)

    assert [found[f"{P0}/{at}"] for at in (0, 20, 40)] == [[0.0], [20.0], [60.0]]
    assert in_memory(world) == kept(world)
    assert (world.key_states.keys, world.key_states.size) == (20, 20 * 4)
    assert world.key_states.loads > 0
    successor = World(broker=world.broker, has_state=True, exactly_once=True, store=FakeStore(), most_in_memory=2)
    successor.start(P0)
    successor.turn_for(1.0)
    assert in_memory(successor) == kept(world)


def test_what_is_too_old_is_forgotten_in_the_store_too() -> None:
    """A tombstone goes to the changelog, and neither memory nor store has the state."""
    world = World(
        has_state=True, exactly_once=True, ttl=10.0, store=FakeStore(), most_in_memory=2, clock=Clock(3000.0)
    ).start(P0)
    old = [of(at, 1.0, key=b"old-%d" % at, at=1000.0) for at in range(12)]
    served(world, *old)

    new = [of(12 + at, 1.0, key=b"new", at=2000.0) for at in range(12)]
    served(world, *new)

    assert in_memory(world) == kept(world) == {b"new": 12.0}
    assert answers(world)[f"{P0}/23"] == [12.0]
