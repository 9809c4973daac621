"""States that do not fit into memory: those used lately stay, and a batch finds all that it asks for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import P0, P1, STATE, World, record
from tests.fakes import Clock, FakeStore
from tests.unit.state.test_in_the_loop import answers, in_memory, kept, of, served
from worker.state.slabs import Rows, Slabs
from worker.state.stored_slots import PASSED_AT_ONCE, StoredSlots

MOST = 8


def slots_of(store: FakeStore, most: int = MOST) -> tuple[StoredSlots, Slabs]:
    slabs = Slabs(STATE)
    return StoredSlots(slabs, STATE, store, most), slabs


def write(slots: StoredSlots, keys: list[bytes], value: float) -> None:
    """As a batch does."""
    slots.begin()
    found = [slot or slots.add(P0, key) for key, slot in zip(keys, list(slots.find(P0, keys)), strict=True)]
    rows = Rows([np.full((len(keys), 1), value, "<f4")], np.arange(len(keys)), np.zeros(len(keys), np.int64))
    slots.put(np.array(found), rows)


def key(number: int) -> bytes:
    return b"key-%d" % number


def test_what_was_not_used_lately_goes_to_the_store() -> None:
    """In one call for a batch, and comes back the same way; what was only read is not written again."""
    store = FakeStore()
    slots, slabs = slots_of(store)
    for number in range(MOST):
        write(slots, [key(number)], float(number))
    write(slots, [key(0)], 10.0)
    assert store.keys == 0

    write(slots, [key(MOST)], 1.0)

    assert slots.keys == MOST + 1
    assert slabs.given <= MOST
    assert store.keys >= 1
    stored = dict(store.values[P0])
    store.gets.clear()
    slots.begin()
    found = list(slots.find(P0, [key(number) for number in range(MOST + 2)]))
    assert [bool(slot) for slot in found] == [True] * (MOST + 1) + [False]
    assert slabs.states[0][found, 0].tolist() == [10.0, *map(float, range(1, MOST)), 1.0, 0.0]
    assert len(store.gets) == 1
    assert slots.loads == len(stored)


def test_a_batch_that_asks_for_more_than_memory_may_hold_gets_all() -> None:
    """What it asked for first is not put away for what it asks for last."""
    slots, slabs = slots_of(FakeStore())
    keys = [key(number) for number in range(3 * MOST)]

    write(slots, keys, 5.0)

    found = list(slots.find(P0, keys))
    assert len(set(found)) == len(keys)
    assert (slabs.states[0][found] == 5.0).all()
    for number in range(PASSED_AT_ONCE):  # and slots are reused behind it
        write(slots, [b"other-%d" % number], 1.0)
    assert slots.keys == len(keys) + PASSED_AT_ONCE
    assert slabs.used <= 3 * MOST + 2


def test_a_key_that_is_asked_for_twice_has_one_slot() -> None:
    """As in a portion of a changelog, where it may come twice."""
    slots, _ = slots_of(FakeStore())
    for number in range(3 * MOST):
        write(slots, [key(number)], float(number))
    slots.begin()

    first, second = slots.find(P0, [key(0), key(0)])

    assert first == second != 0
    assert slots.keys == 3 * MOST


def test_more_than_one_portion_of_slots_is_gone_round() -> None:
    """The hand begins at the first again."""
    most = 2 * PASSED_AT_ONCE + 10
    store = FakeStore()
    slots, slabs = slots_of(store, most)
    for start in range(0, 3 * most, 64):
        write(slots, [key(number) for number in range(start, start + 64)], float(start))

    assert slots.keys == slots.keys_of(P0) == len(range(0, 3 * most, 64)) * 64
    assert slabs.given <= most
    for start in (0, 640, 64 * (3 * most // 64)):
        slots.begin()
        found = list(slots.find(P0, [key(start)]))
        assert slabs.states[0][found[0], 0] == start


@given(st.lists(st.tuples(st.sampled_from(["write", "drop", "read", "forget"]), st.integers(0, 11)), max_size=60))
def test_it_is_a_dictionary(calls: list[tuple[str, int]]) -> None:
    """Whatever is written, dropped and read in whatever order, with room for three."""
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
        slots.begin()
        [slot] = slots.find(P0, [key(which)])
        assert (slabs.states[0][slot, 0] if slot else None) == expected.get(key(which))
        assert slots.keys == slots.keys_of(P0) == len(expected)
    slots.begin()
    found = list(slots.find(P0, list(expected)))
    assert slabs.states[0][found, 0].tolist() == list(expected.values())


def test_states_beyond_memory_are_served_restored_and_forgotten() -> None:
    """By a worker with room for two of twenty keys, and by its successor."""
    requests = [of(at, float(at), key=b"%d" % (at % 20)) for at in range(60)]
    world = World(has_state=True, exactly_once=True, store=FakeStore(), most_in_memory=2).start(P0)

    found = served(world, *requests)

    assert [found[f"{P0}/{at}"] for at in (0, 20, 40)] == [[0.0], [20.0], [60.0]]
    assert in_memory(world) == kept(world)
    assert world.states is not None
    assert (world.states.keys, world.states.size <= 8 * 4) == (20, True)
    assert world.states.loads > 0
    successor = World(broker=world.broker, has_state=True, exactly_once=True, store=FakeStore(), most_in_memory=2)
    successor.start(P0)
    successor.turn_for(1.0)
    assert in_memory(successor) == kept(world)


def test_what_is_too_old_is_forgotten_in_the_store_too() -> None:
    """A tombstone goes to the changelog, and neither memory nor store has it."""
    world = World(
        has_state=True, exactly_once=True, ttl=10.0, store=FakeStore(), most_in_memory=2, clock=Clock(3000.0)
    ).start(P0)
    old = [of(at, 1.0, key=b"old-%d" % at, at=1000.0) for at in range(12)]
    served(world, *old)

    new = [of(12 + at, 1.0, key=b"new", at=2000.0) for at in range(12)]
    served(world, *new)

    assert in_memory(world) == kept(world) == {b"new": 12.0}
    assert answers(world)[f"{P0}/23"] == [12.0]


def test_partitions_leave_with_what_is_stored() -> None:
    """The store keeps nothing that another replica goes on from."""
    store = FakeStore()
    world = World(has_state=True, exactly_once=True, store=store, most_in_memory=2).start(P0, P1)
    served(world, *[record(at, 1.0, key=b"%d" % at, partition=P1) for at in range(8)])
    assert store.keys_of(P1) > 0

    world.worker.revoked([P1])

    assert store.keys_of(P1) == 0
