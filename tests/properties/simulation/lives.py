"""One life after another on the same topics, with a crash wherever it is wanted, until all is answered.

    requests ─▶ life 1 ✝ before its step k ─▶ life 2 ✝ … ─▶ the last life answers what is left, and leaves in good order

A crash is before a step, and so after the one before it. What was on its way then is lost; or arrives after the death;
or arrives after the successor has taken over (`Crash.kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.builders import NONSENSE, P0, P1, POISON, floats
from tests.properties.simulation.broker import SimBroker
from tests.properties.simulation.checker import SILENT, Broken, Checker
from tests.properties.simulation.memories import SimStore
from tests.properties.simulation.process import Fate, Weather, World
from tests.properties.simulation.replica import Replica, Setup
from worker.core.records import Partition, Record

MOST_SECONDS = 30.0  # of one life: its longest wait is for a transaction of the dead to be swept
MOST_LIVES = 12

A, B = b"a", b"b"  # keys of two different output partitions


def request(partition: Partition, offset: int, value: bytes | None, key: bytes | None = A) -> Record:
    return Record(partition, offset, key, value, (), None)


def with_key_of_its_own(record: Record) -> Record:
    """Where keys have states, none is of two partitions, and each request has one."""
    return record._replace(key=b"%d%b" % (record.partition.number, record.key or b"c"))


# Two partitions and, with three rows to a batch, four batches and more: a failing run is halved, a nonsense row is cut
# out, and what cannot be decoded is answered beside them. Offsets have gaps.
REQUESTS = (
    request(P0, 0, floats(1.0)),
    request(P0, 1, floats(2.0), B),
    request(P0, 3, floats(POISON)),
    request(P0, 4, floats(4.0, 5.0), None),
    request(P1, 0, None),
    request(P1, 1, floats(11.0)),
    request(P1, 2, floats(12.0, NONSENSE), B),
    request(P1, 5, b"odd"),
)
# Of transactions: after the first requests, and after the last.
MARKERS = {P0: {5, 8, 9}, P1: {8}}
# What comes while the first ones are under way.
LATER = (
    (0.015, request(P1, 6, SILENT)),
    (0.015, request(P1, 7, floats(13.0), B)),
    (0.015, request(P0, 6, floats(6.0, 7.0, 8.0))),
    (0.022, request(P0, 7, floats(9.0), B)),
)


@dataclass(frozen=True)
class Crash:
    """Before this step of a life; 0: at none. `takeover`: seconds until the next life has its partitions."""

    step: int
    last_words: bool = False
    takeover: float = 0.0

    @staticmethod
    def kinds(step: int) -> Iterator[Crash]:
        """What was under way is lost; arrives before the successor takes over; arrives when it has."""
        yield Crash(step)
        yield Crash(step, last_words=True, takeover=0.02)
        yield Crash(step, last_words=True)


# What goes wrong in a life without a crash: reports that overtake each other, commits refused and unheard; transactions
# taken back, committed without our hearing of it, and never ended at all; a store that does what it is asked too late,
# without our hearing of it, or not.
SOME_TROUBLE = {
    "produce": [Fate(there) for there in (0.001, 0.012, 0.004, 0.002, 0.009)] * 4,
    "commit": [Fate(), Fate(refusal="refused for this time"), Fate(heard_after=0.01)],
    "write offsets": [Fate(), Fate(refusal="refused for this time")],
    "commit transaction": [Fate(), Fate(heard_after=0.01), Fate(is_lost=True, heard_after=0.01)],
    "store": [Fate(), Fate(0.02, heard_after=0.01), Fate(heard_after=0.01), Fate(is_lost=True, heard_after=0.01)] * 2,
}


@dataclass(frozen=True)
class Scenario:
    """What is asked, by whom it is answered, and what befalls him: fates of the first requests of a kind, and bounces.

    A bounce takes a partition away and gives it back within one poll, so many seconds after the beginning.
    """

    setup: Setup = field(default_factory=Setup)
    requests: Sequence[Record] = REQUESTS
    later: Sequence[tuple[float, Record]] = LATER
    markers: Mapping[Partition, set[int]] = field(default_factory=lambda: MARKERS)
    fates: Mapping[str, Sequence[Fate]] = field(default_factory=dict)
    bounces: Sequence[tuple[float, Partition]] = ()


def troubled(setup: Setup) -> Scenario:
    """The usual requests, with trouble."""
    later = 0.1 if setup.memory else 0.0  # the first poll waits for so long, and states come meanwhile
    return Scenario(setup, fates=SOME_TROUBLE, bounces=[(0.018 + later, P0), (0.05 + later, P1)])


class Lives:
    """One worker after another, none beside another."""

    def __init__(self, scenario: Scenario, last: Crash | None = None, most_lives: int = MOST_LIVES) -> None:
        """`last`: how the lives fare whose end is not asked for, but comes: of a record that kills."""
        self._scenario = scenario
        self._last = last
        self._most_lives = most_lives
        self.world = World()
        self.weather = Weather()
        self.broker = SimBroker(self.world)
        self.checker = Checker(self.world, self.broker, scenario.setup)
        self.broker.watcher = self.checker
        self.store = SimStore(self.checker.stored)
        self.lived: list[Replica] = []
        self._unpublished = len(scenario.later)
        self._publish(*scenario.requests)
        self.broker.markers = dict(scenario.markers)
        for kind, fates in scenario.fates.items():
            coming = iter(fates)
            self.weather.fates[kind] = lambda coming=coming: next(coming, Fate())  # type: ignore[misc]
        for seconds, record in scenario.later:
            self._in(seconds, partial(self._publish_late, record))
        for seconds, partition in scenario.bounces:
            self._in(seconds, partial(self._bounce, partition))

    def live(self, crash: Crash | None = None, mishap: tuple[int, str] | None = None) -> Replica:
        """One life: until it dies, or has answered everything and left. `mishap`: one of `MISHAPS` before this step."""
        name = f"life-{len(self.lived) + 1}"
        replica = Replica(name, self.world, self.broker, self.store, self._scenario.setup.named(0), self.weather)
        self.lived.append(replica)
        partitions = {record.partition for record in self._scenario.requests}
        self.broker.group.assign(dict.fromkeys(partitions, name))
        if mishap is not None:
            step, what = mishap
            replica.process.mishaps[step] = partial(MISHAPS[what], self, replica)
        replica.start(crash.step if crash else None, last_words=crash is not None and crash.last_words)
        until = self.world.clock.now + MOST_SECONDS
        while not replica.is_over and not self._is_done(replica):
            replica.turn()
            if self.world.clock.now > until:
                raise Broken(f"{replica} does not come to an end\n" + "\n".join(self.world.history[-100:]))
        if not replica.is_over:
            replica.stop()
        self._bury(replica, crash)
        return replica

    def until_done(self, crashes: Sequence[Crash] = ()) -> int:
        """Lives with these crashes, then others until all is answered. Returns how many had such a step."""
        met = sum(self._meets(crash) for crash in crashes)
        while self._unpublished or not self.checker.is_all_answered:
            if len(self.lived) > self._most_lives:
                raise Broken(f"{self._most_lives} lives were not enough\n" + "\n".join(self.world.history[-100:]))
            self.live(self._last)
        # What a dead one left open under an id of its own ends by its timeout; until then it holds readers up.
        self.world.clock.wait(self._scenario.setup.transaction_timeout + 1.0, lambda: self.broker.is_quiet)
        self.checker.finish()
        return met

    def _meets(self, crash: Crash) -> bool:
        replica = self.live(crash)
        return replica.process.dies_before == len(replica.process.steps)

    def _in(self, seconds: float, event: Callable[[], None]) -> None:
        self.world.clock.at(self.world.clock.now + seconds, event)

    def _bounce(self, partition: Partition) -> None:
        self.broker.group.bounce(self.lived[-1].process.name, [partition])

    def _publish(self, *records: Record) -> None:
        has_state = self._scenario.setup.memory is not None
        self.broker.publish(*map(with_key_of_its_own, records) if has_state else records)

    def _publish_late(self, record: Record) -> None:
        self._publish(record)
        self._unpublished -= 1

    def _is_done(self, replica: Replica) -> bool:
        return not self._unpublished and self.checker.is_all_answered and replica.is_idle

    def _bury(self, replica: Replica, crash: Crash | None) -> None:
        """Let arrive what still does, and let the group notice."""
        self.world.clock.wait(crash.takeover if crash else 0.02)
        self.throw_out(replica.process.name)

    def throw_out(self, name: str) -> None:
        """Nothing was heard of it for too long; it does not know."""
        if name in self.broker.group.members:
            self.checker.note_isolated_runs()
            self.broker.group.leave(name)


def _bounce_all(lives: Lives, replica: Replica) -> None:
    lives.broker.group.bounce(replica.process.name, list(lives.broker.group.target))


def _throw_out(lives: Lives, replica: Replica) -> None:
    lives.throw_out(replica.process.name)


def _lose_touch(_: Lives, replica: Replica) -> None:
    if hasattr(replica, "source"):  # else it has not even begun
        replica.source.is_out_of_touch = True


# How all partitions may go and come back to the one who had them, within one poll.
MISHAPS: Mapping[str, Callable[[Lives, Replica], None]] = {
    "revoked and given back": _bounce_all,
    "thrown out, and back": _throw_out,
    "out of touch with a group that noticed nothing": _lose_touch,
}
