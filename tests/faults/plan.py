"""The faults, their order and their lengths, all from the seed, before anything starts. Pure.

Each round has every kind once in an order of its own, because pure chance would leave some kind out of a short run.
Faults that end all replicas come only in the last round of a leg.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum
from itertools import product
from typing import NamedTuple


class Kind(StrEnum):
    """A kind of fault, done once in each round."""

    KILL = "kill -9"
    HOST_KILL = "host kill -9"
    TERMINATE = "SIGTERM"
    SUSPEND = "SIGSTOP"
    REBALANCE = "rebalance"
    LOST_OFFSET = "lost offset"
    BROKER_STOP = "broker stop"
    BROKER_KILL = "broker kill -9"
    BROKER_SUSPEND = "broker SIGSTOP"
    SILENCE = "expired producers"
    SPOILED = "batch spoiled on disk"
    OPEN = "open transaction"
    STORE_KILL = "store kill -9"
    STORE_SUSPEND = "store SIGSTOP"
    REGISTRY_STOP = "registry stop"
    REGISTRY_SUSPEND = "registry SIGSTOP"

    @property
    def stops_all(self) -> bool:
        """True if no request can be answered while it lasts."""
        return self in _STOPPING


_STORES = {Kind.STORE_KILL, Kind.STORE_SUSPEND}
_REGISTRIES = {Kind.REGISTRY_STOP, Kind.REGISTRY_SUSPEND}  # a partition waits only where a new schema comes
_ONCE_A_LEG = (Kind.LOST_OFFSET,)  # it ends all replicas, and one must live long enough to show growth of memory
_STOPPING = (Kind.BROKER_STOP, Kind.BROKER_KILL, Kind.BROKER_SUSPEND, *_STORES)


def kinds(
    guarantee: str, brokers: int, *, has_store: bool = False, has_registry: bool = False, forgets: bool = True
) -> Sequence[Kind]:
    """The kinds for workers with this guarantee, a cluster of `brokers`, an outside store, and a schema registry.

    A lone broker loses the ends of transactions when it stops, in good order or not: its coordinator finds no leader
    for the marker, and takes the partition for deleted and the transaction for ended (KAFKA-20734, 4.3.1: "Couldn't
    find leader endpoint ... can be skipped"). Answers and offsets of a transaction that the client believes committed
    then stay open, and fare like that producer's next transaction; so do those of an aborted one. No client can mend
    that. So exactly once meets restarts only with three brokers, and a lone one is only frozen, with a session that
    outlasts it.

    `forgets`: the brokers forget transactional ids soon. While a model's process starts again there is no transaction,
    so brokers that forget in a second would refuse a worker's transactions for as long as a function ends the process.
    """
    is_exactly_once = guarantee == "exactly_once"
    is_lone = is_exactly_once and brokers == 1
    without = {Kind.BROKER_STOP, Kind.BROKER_KILL} if is_lone else {Kind.BROKER_SUSPEND}
    if not (is_exactly_once and forgets):
        without.add(Kind.SILENCE)
    without |= (set() if has_store else _STORES) | (set() if has_registry else _REGISTRIES)
    return [kind for kind in Kind if kind not in without]


# The length of each, seconds from and to. A group gives a member up after 3 s: half the suspensions are longer.
LASTS = {
    Kind.KILL: (0.0, 2.0),  # until it is replaced
    Kind.HOST_KILL: (0.0, 3.0),  # until the next host of that replica is killed, too
    Kind.TERMINATE: (0.0, 1.0),  # likewise
    Kind.SUSPEND: (0.5, 8.0),
    Kind.REBALANCE: (0.3, 4.0),  # until the further member leaves again
    Kind.LOST_OFFSET: (0.0, 0.0),
    Kind.BROKER_STOP: (0.1, 3.0),  # until it is started again
    Kind.BROKER_KILL: (0.1, 3.0),
    Kind.BROKER_SUSPEND: (0.5, 8.0),
    Kind.SILENCE: (0.0, 2.0),  # longer than the brokers need to forget
    Kind.SPOILED: (0.0, 1.0),
    Kind.OPEN: (1.0, 12.0),
    Kind.STORE_KILL: (0.1, 3.0),
    Kind.STORE_SUSPEND: (0.5, 8.0),
    Kind.REGISTRY_STOP: (0.1, 8.0),
    Kind.REGISTRY_SUSPEND: (0.5, 8.0),
}
CALM = (0.5, 3.0)  # from the end of one fault to the next, at least
SLOT = 9.5  # from the start of one fault to the next, seconds: 21 rounds of six in 20 minutes
NEIGHBOURS_DIFFER = (0, 3, 1, 2)  # the order of four pairs in which both members change most often


class Fault(NamedTuple):
    """One fault to come, `starts` seconds after the first. `pick` (0 to 1) chooses the victim."""

    starts: float
    kind: Kind
    pick: float
    seconds: float
    calm: float

    def choose(self, count: int) -> int:
        """The number of the victim among `count`."""
        return int(self.pick * count)


class Leg(NamedTuple):
    """A part of the run: the group's protocol, stable or unique transactional ids, and its faults."""

    protocol: str
    ids: str
    faults: Sequence[Fault]


def rounds_in(minutes: float, faults: int) -> int:
    """The number of rounds of `faults` faults that fill `minutes`."""
    return max(1, round(minutes * 60.0 / (SLOT * faults)))


def plan(
    seed: int, rounds: int, each: Sequence[Kind], *, protocol: str = "turns", ids: str = "turns", pace: float = 1.0
) -> list[Leg]:
    """Plan the whole run, with `each` kind once in a round.

    `protocol` consumer, classic or turns; `ids` unique, stable or turns; `pace` scales all times.
    """
    chance = random.Random(seed)
    protocols = ("consumer", "classic") if protocol == "turns" else (protocol,)
    ways = list(product(protocols, ("unique", "stable") if ids == "turns" else (ids,)))
    if len(ways) == len(NEIGHBOURS_DIFFER):
        ways = [ways[at] for at in NEIGHBOURS_DIFFER]
    legs = []
    for number, (its_protocol, its_ids) in enumerate(ways[:rounds]):
        count = min(len(ways), rounds)
        mine = range(rounds * number // count, rounds * (number + 1) // count)
        usual = [kind for kind in each if kind not in _ONCE_A_LEG]
        faults = [
            fault for at in mine for fault in _round(chance, each if at == mine[-1] else usual, at * len(each), pace)
        ]
        legs.append(Leg(its_protocol, its_ids, faults))
    return legs


def _round(chance: random.Random, each: Sequence[Kind], first: int, pace: float) -> list[Fault]:
    return [
        Fault(
            (first + at) * SLOT * pace,
            kind,
            chance.random(),
            chance.uniform(*LASTS[kind]) * pace,
            chance.uniform(*CALM) * pace,
        )
        for at, kind in enumerate(chance.sample(each, len(each)))
    ]
