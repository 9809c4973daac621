"""The answers that wait for others when batches finish in another order than they began."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from tests.builders import World
from tests.chunks import P0, record
from worker.core.batching.batcher import BatchPolicy
from worker.core.ordering.order_by_key import Order
from worker.loop.conduct import Conduct

# Each batch has one record, and there are two lanes.
POLICY = BatchPolicy(max_rows=1, max_bytes=1 << 20, linger=0.0)
CONDUCT = Conduct(lanes=2, inflight_batches=2)
loose_orders = pytest.mark.parametrize("order", ["key", "none"])


def world_of(order: Order, *keys: bytes | None, slow: Sequence[int] = (0,)) -> World:
    """A worker with one record per key. Runs with these numbers take a second, the others a hundredth."""
    world = World(order=order, policy=POLICY, conduct=CONDUCT, commit_interval=0.02).start(P0)
    world.broker.append(*[record(at, key=key) for at, key in enumerate(keys)])
    run = count()
    world.lanes.seconds = lambda: 1.0 if next(run) in slow else 0.01
    return world


def offsets(world: World) -> list[int]:
    """Offsets of the answered requests, in the order of the answers."""
    return [int(source.rpartition("/")[2]) for source in world.answered()]


@pytest.mark.parametrize(
    ("order", "early", "late"),
    [("partition", [], [0, 1, 2, 3]), ("key", [1, 3], [0, 2]), ("none", [1, 2, 3], [0])],
)
def test_a_slow_request_holds_up_those_that_wait_for_it(order: Order, early: list[int], late: list[int]) -> None:
    """All requests of its partition wait, or those of its key, or none. A record without a key waits for no other."""
    world = world_of(order, b"a", b"b", b"a", None)

    world.turn_for(0.5)
    assert offsets(world) == early
    assert world.broker.committed == {}

    world.turn_for(1.0)
    assert offsets(world) == early + late
    assert world.broker.committed == {P0: 4}


@loose_orders
def test_a_revoke_commits_no_further_than_the_slow_one(order: Order) -> None:
    """The next owner answers again what left early."""
    world = world_of(order, b"a", b"b", b"c", slow=[1])
    world.turn_for(0.1)
    assert offsets(world) == [0, 2]

    world.delivery.revoke([P0], deadline=world.clock.now)

    assert world.broker.committed == {P0: 1}
    assert world.ledger.records == 0
