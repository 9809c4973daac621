"""One life after another on the topics, with a crash at any step, until all is answered.

    requests ─▶ life 1 ✝ before its step k ─▶ life 2 ✝ … ─▶ the last life answers the rest, and leaves in good order

A crash is before a step, and so after the one before it. Requests on their way are lost, or arrive after the death, or
arrive after the successor has taken over (`Crash.kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.builders import FAULTY, NONSENSE, POISON
from tests.chunks import P0, P1, floats
from tests.properties.simulation.broker import SimBroker
from tests.properties.simulation.checker import SILENT, Broken, Checker
from tests.properties.simulation.memories import SimStore
from tests.properties.simulation.process import Fate, Weather, World
from tests.properties.simulation.replica import Replica, Setup
from worker.core.records import Partition, Record

MOST_SECONDS = 30.0  # of one life: its longest wait is for a dead process's transaction to be swept
MOST_LIVES = 12

A, B = b"a", b"b"  # keys of two different output partitions


def request(partition: Partition, offset: int, value: bytes | None, key: bytes | None = A) -> Record:
    return Record(partition, offset, key, value, (), None)


def with_key_of_its_own(record: Record) -> Record:
    """A record fit for states: it has a key, and no key is in two partitions."""
    return record._replace(key=b"%d%b" % (record.partition.number, record.key or b"c"))


# Two partitions and, with three rows to a batch, four batches or more. A failing run is halved, a nonsense row is cut
# out, a faulty row has the others run again, and undecodable records are answered meanwhile. Offsets have gaps.
REQUESTS = (
    request(P0, 0, floats(1.0)),
    request(P0, 1, floats(2.0), B),
    request(P0, 3, floats(POISON)),
    request(P0, 4, floats(4.0, 5.0), None),
    request(P1, 0, None),
    request(P1, 1, floats(11.0)),
    request(P1, 2, floats(12.0, NONSENSE), B),
    request(P1, 3, floats(3.0, FAULTY)),
    request(P1, 5, b"odd"),
)
# Markers of transactions: after the first requests, and after the last.
MARKERS = {P0: {5, 8, 9}, P1: {8}}
# Requests that come while the first ones are under way.
LATER = (
    (0.015, request(P1, 6, SILENT)),
    (0.015, request(P1, 7, floats(13.0), B)),
    (0.015, request(P0, 6, floats(6.0, 7.0, 8.0))),
    (0.022, request(P0, 7, floats(9.0), B)),
)


@dataclass(frozen=True)
class Crash:
    """A death before `step` of a life; 0: at none. `takeover`: seconds until the next life has its partitions."""

    step: int
    last_words: bool = False
    takeover: float = 0.0

    @staticmethod
    def kinds(step: int) -> Iterator[Crash]:
        """Requests under way are lost, or arrive before the successor takes over, or after."""
        yield Crash(step)
        yield Crash(step, last_words=True, takeover=0.02)
        yield Crash(step, last_words=True)


# Trouble in a life without a crash: reports overtake each other, commits are refused or unheard; transactions are taken
# back, committed unheard, or never ended; a store does its work too late, unheard, or not at all.
SOME_TROUBLE = {
    "produce": [Fate(there) for there in (0.001, 0.012, 0.004, 0.002, 0.009)] * 4,
    "commit": [Fate(), Fate(refusal="refused for this time"), Fate(heard_after=0.01)],
    "write offsets": [Fate(), Fate(refusal="refused for this time")],
    "commit transaction": [Fate(), Fate(heard_after=0.01), Fate(is_lost=True, heard_after=0.01)],
    "store": [Fate(), Fate(0.02, heard_after=0.01), Fate(heard_after=0.01), Fate(is_lost=True, heard_after=0.01)] * 2,
}


@dataclass(frozen=True)
class Scenario:
    """The requests, the worker's setup, and its trouble: fates of the first requests of a kind, and bounces.

    A bounce takes a partition away and gives it back within one poll, at its second of the world's time.
    """

    setup: Setup = field(default_factory=Setup)
    requests: Sequence[Record] = REQUESTS
    later: Sequence[tuple[float, Record]] = LATER
    markers: Mapping[Partition, set[int]] = field(default_factory=lambda: MARKERS)
    fates: Mapping[str, Sequence[Fate]] = field(default_factory=dict)
    bounces: Sequence[tuple[float, Partition]] = ()


def troubled(setup: Setup) -> Scenario:
    """A scenario of the usual requests with trouble."""
    later = 0.1 if setup.memory else 0.0  # the first poll's wait, in which states come
    return Scenario(setup, fates=SOME_TROUBLE, bounces=[(0.018 + later, P0), (0.05 + later, P1)])


class Lives:
    """One worker after another, never two at once."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
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
        """One life, until it dies, or has answered everything and left. `mishap`: one of `MISHAPS` before a step."""
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
        """Live with these crashes, then without until all is answered. Returns the number of crashes that happened."""
        met = sum(self._meets(crash) for crash in crashes)
        while self._unpublished or not self.checker.is_all_answered:
            if len(self.lived) > MOST_LIVES:
                raise Broken(f"{MOST_LIVES} lives were not enough\n" + "\n".join(self.world.history[-100:]))
            self.live()
        # A dead process's transaction under an id of its own ends by its timeout; until then it holds readers up.
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
        """Let last requests arrive, and let the group notice the death."""
        self.world.clock.wait(crash.takeover if crash else 0.02)
        self.throw_out(replica.process.name)

    def throw_out(self, name: str) -> None:
        """Remove a member that was silent for too long; it does not know."""
        if name in self.broker.group.members:
            self.broker.group.leave(name)


def _bounce_all(lives: Lives, replica: Replica) -> None:
    lives.broker.group.bounce(replica.process.name, list(lives.broker.group.target))


def _throw_out(lives: Lives, replica: Replica) -> None:
    lives.throw_out(replica.process.name)


def _lose_touch(_: Lives, replica: Replica) -> None:
    if hasattr(replica, "source"):  # else it has not begun yet
        replica.source.is_out_of_touch = True


# Ways in which all partitions may leave and come back to their owner within one poll.
MISHAPS: Mapping[str, Callable[[Lives, Replica], None]] = {
    "revoked and given back": _bounce_all,
    "thrown out, and back": _throw_out,
    "out of touch with a group that noticed nothing": _lose_touch,
}
