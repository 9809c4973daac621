"""Random events for two replicas of one group; dice decide their order.

    Play(dice, exact).run()   some forty deeds, then the world heals and everything must be answered

The dice are a `random.Random`. Hypothesis brings its own, and can simplify their throws until a failing run is short; a
seed repeats a run. Every deed is noted, so the history of a failure reads like a log.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar
from unittest import mock

from tests.builders import ENDED, FAULTY, HANGING, KILLER, LARGE, NONSENSE, POISON, SHORT
from tests.chunks import P0, P1, Q0, floats
from tests.properties.simulation.broker import SimBroker
from tests.properties.simulation.checker import SILENT, Broken, Checker
from tests.properties.simulation.lives import request, with_key_of_its_own
from tests.properties.simulation.memories import SimStore
from tests.properties.simulation.process import Fate, Weather, World
from tests.properties.simulation.replica import Memory, Replica, Setup
from worker.core.batching.back_pressure import Bounds
from worker.core.batching.batcher import BatchPolicy
from worker.core.ordering.order_by_key import Order
from worker.core.records import Partition
from worker.loop import held_back
from worker.loop.conduct import Conduct

PARTITIONS = (P0, P1, Q0)
KEYS = (b"a", b"b", None)
DEEDS = 40
HEALING_SECONDS = 300.0  # a lost commit is waited for 60 s
REFUSED = "refused for this time"
# Transactional ids, and whether they come from a static member's instance id: two such ids never shut each other out.
_IDS = (("replica-{n}", False), ("replica-{n}", True), (None, False), (None, False), ("shared by mistake", False))


T = TypeVar("T")


class Play:
    """One random run: two posts, the replicas that come and go at them, and their troubles."""

    def __init__(
        self, dice: random.Random, *, is_exact: bool, order: Order = "partition", memory: Memory | None = None
    ) -> None:
        self._dice = dice
        self.world = World()
        self.weather = Weather()
        self.broker = SimBroker(self.world)
        self._setup = replace(self._any_setup(is_exact), order=order, memory=memory)
        self.checker = Checker(self.world, self.broker, self._setup)
        self.broker.watcher = self.checker
        self._store = SimStore(self.checker.stored)
        self._partitions = PARTITIONS if memory is None else PARTITIONS[:2]  # a model with state has one request topic
        self._replicas: list[Replica | None] = [None, None]
        self._lives = 0
        self._killers = dice.choice([0.0, 0.0, 0.04])  # share of records that end the host of the model
        self._deeds: list[tuple[int, Callable[[], None]]] = [
            (10, self._turn),
            (4, self._publish),
            (2, self._rebalance),
            (1, self._bounce),
            (2, self._expel),
            (2, self._lose_touch),
            (2, self._stall),
            (2, self._crash),
            (1, self._stop),
            (1, self._break_device),
            (1, self._kill_host),
            (2, self._revive),
            (3, self._slow_down),
            (3, self._trouble),
            (3, self._change_registry),
            (1, self._calm),
        ]

    def make_deadly(self) -> Play:
        """Send many records that end the host of the model, and kill more hosts from outside."""
        self._killers = self._dice.choice([0.0, 0.05, 0.2])
        self._deeds.append((5, self._kill_host))
        return self

    def run(self) -> list[str]:
        """Play, and return the history. Raises `Broken` where a promise is broken."""
        with mock.patch.object(held_back, "PATIENCE", self._dice.choice([0.001, 0.01, 1.0])):
            return self._run()

    def _run(self) -> list[str]:
        for post in (0, 1):
            self._start(post)
        self._publish()
        self._rebalance()
        for _ in range(DEEDS):
            self._any(self._deeds)()
        self._heal()
        self.checker.finish()
        return self.world.history

    # Deeds

    def _turn(self) -> None:
        """Let the two take some turns at random."""
        for _ in range(self._dice.randint(1, 12)):
            self._go(self._dice.randint(0, 1))

    def _publish(self) -> None:
        partition = self._dice.choice(self._partitions)
        for _ in range(self._dice.randint(1, 6)):
            offset = self.broker.past_markers(partition, self.broker.end(partition)) + (self._dice.random() < 0.2)
            record = request(partition, offset, self._any_value(), self._dice.choice(KEYS))
            if self._dice.random() < 0.25:
                record = record._replace(headers=[*record.headers, ("schema", b"%d" % self._dice.randint(1, 5))])
            self.broker.publish(record if self._setup.memory is None else with_key_of_its_own(record))
        if self._dice.random() < 0.3:
            self.broker.markers.setdefault(partition, set()).add(offset + 1)
        self._note(f"published up to {partition}/{offset}")

    def _rebalance(self) -> None:
        living = [replica.process.name for replica in self._living()]
        if living:
            self.broker.group.assign({p: self._dice.choice(living) for p in self._partitions})
            self._note(f"rebalance {self.broker.group.target}")

    def _bounce(self) -> None:
        if (replica := self._any_living()) is not None:
            some = [p for p in replica.source.held if self._dice.random() < 0.6]
            self.broker.group.bounce(replica.process.name, some)
            self._note(f"bounce {replica.process.name} {some}")

    def _expel(self) -> None:
        """The group has heard nothing of it for too long: the other one gets its partitions, and it does not know."""
        if (replica := self._any_living()) is not None:
            self._throw_out(replica.process.name)
            self._rebalance()

    def _lose_touch(self) -> None:
        """It has heard nothing of the group for too long and gives its partitions up; the group does not know."""
        if (replica := self._any_living()) is not None:
            self._note(f"{replica.process.name} is out of touch")
            replica.source.is_out_of_touch = True

    def _stall(self) -> None:
        """It stands still, and is thrown out if that takes too long."""
        if (replica := self._any_living()) is not None:
            seconds = self._dice.choice([0.05, 0.5, 2.0])
            self._note(f"{replica.process.name} stalls for {seconds}")
            replica.stall(seconds)
            if self._dice.random() < 0.5:
                self._throw_out(replica.process.name)
                self._rebalance()

    def _crash(self) -> None:
        if (replica := self._any_living()) is not None:
            replica.crash(last_words=self._dice.random() < 0.5)
            name, noticed = replica.process.name, self._dice.choice([0.0, 0.01, 1.0])
            self.world.clock.at(self.world.clock.now + noticed, lambda: self._throw_out(name))

    def _stop(self) -> None:
        if (replica := self._any_living()) is not None and replica.can_turn:
            replica.signals.hurry_asked = self._dice.random() < 0.3
            self._note(f"{replica.process.name} is told to stop, at once: {replica.signals.hurry_asked}")
            replica.stop()

    def _break_device(self) -> None:
        """Every run fails from now on, the device check too: the worker stops."""
        if (replica := self._any_living()) is not None:
            self._note(f"the device of {replica.process.name} breaks")
            replica.lanes.is_broken = True

    def _kill_host(self) -> None:
        """The process that has the model is killed from outside."""
        if (replica := self._any_living()) is not None:
            self._note(f"the host of {replica.process.name} is killed")
            self.checker.was_killed(replica.lanes.kill_host(ENDED))

    def _revive(self) -> None:
        """Start a new life at an empty post, with partitions."""
        for post, replica in enumerate(self._replicas):
            if replica is None or replica.is_over:
                self._start(post)
                self._rebalance()
                return

    def _slow_down(self) -> None:
        """Requests take longer, and reports come late and in any order between output partitions."""
        slowest = self._dice.choice([0.002, 0.03, 0.4, 3.0])  # the last one is longer than a transaction may be open
        slow = ["produce", "write", "commit", "write offsets", "commit transaction"]
        kinds = self._dice.sample(slow + ["store"] * (self._setup.memory == "store"), 2)
        seed = self._dice.getrandbits(16)
        for kind in kinds:
            inner = random.Random(f"{seed} {kind}")
            self.weather.fates[kind] = lambda inner=inner: Fate(inner.uniform(0, slowest), inner.uniform(0, slowest))  # type: ignore[misc]
        for replica in self._living():
            replica.lane_seconds = self._dice.choice([0.001, 0.02, 0.3])
        self._note(f"slow: {kinds} up to {slowest}")

    def _trouble(self) -> None:
        """Some requests of one kind fail in one way."""
        kind, fate = self._any(self._troubles())
        share = self._dice.choice([0.1, 0.5, 1.0])
        inner = random.Random(self._dice.getrandbits(16))
        self.weather.fates[kind] = lambda: fate if inner.random() < share else Fate()
        self._note(f"trouble: {share:.0%} of {kind}: {fate}")

    def _change_registry(self) -> None:
        """The registry answers sooner or later from now on, or not at all."""
        for replica in self._living():
            replica.schemas.takes = self._dice.choice([0.001, 0.1, 0.5, 2.0, None])
            self._note(f"{replica.process.name} hears of a schema after {replica.schemas.takes}")

    def _calm(self) -> None:
        self.weather.clear()
        for replica in self._living():
            replica.schemas.takes = 0.0
            replica.schemas.come(*replica.schemas.asked)
        for replica in self._living():
            replica.lane_seconds = 0.004
        self._note("calm")

    def _troubles(self) -> list[tuple[int, tuple[str, Fate]]]:
        commits = [
            Fate(refusal=REFUSED),
            Fate(is_lost=True, heard_after=0.3),
            Fate(heard_after=0.3),
            Fate(there=0.2, heard_after=0.1),
        ]
        return [
            (1, ("produce", Fate(refusal="the broker takes no such message"))),
            (2, ("write", Fate(refusal="the broker takes no such message"))),
            *((1, ("commit", fate)) for fate in commits),
            *((1, ("write offsets", fate)) for fate in commits),
            *((2, ("commit transaction", fate)) for fate in commits[1:]),
            *((1, ("abort transaction", fate)) for fate in commits[1:]),
            *((5, ("store", fate)) for fate in commits if self._setup.memory == "store"),
        ]

    # The end

    def _heal(self) -> None:
        self._note("the world heals")
        self._calm()
        until = self.world.clock.now + HEALING_SECONDS
        self._rebalance()
        while not (self.checker.is_all_answered and self.broker.is_quiet):
            self._succeed()
            if {p for r in self._living() for p in self._meant_for(r)} != set(self._partitions):
                self._rebalance()
            for post in (0, 1):
                self._go(post)
            if not any(replica.can_turn for replica in self._living()):
                self.world.clock.wait(0.1)
            if self.world.clock.now > until:
                raise Broken(f"stuck: {self._replicas} {self.broker.group}\n" + "\n".join(self.world.history[-100:]))

    def _succeed(self) -> None:
        """The group notices dead replicas, and the first post gets a new one."""
        for post, replica in enumerate(self._replicas):
            if replica is not None and replica.is_over:
                self._throw_out(replica.process.name)
                if post == 0:
                    self._start(0)
                    self._rebalance()

    def _meant_for(self, replica: Replica) -> set[Partition]:
        return {p for p, name in self.broker.group.target.items() if name == replica.process.name}

    # The parts of deeds

    def _start(self, post: int) -> None:
        old = self._replicas[post]
        if old is not None:
            self._throw_out(old.process.name)
        self._lives += 1
        name = f"life-{self._lives}"
        replica = Replica(name, self.world, self.broker, self._store, self._setup.named(post), self.weather)
        self._replicas[post] = replica
        replica.schemas.takes = self._dice.choice([0.0, 0.0, 0.1, 2.0])
        self._note(f"{name} starts at post {post}, and hears of a schema after {replica.schemas.takes}")
        replica.start()

    def _go(self, post: int) -> None:
        replica = self._replicas[post]
        if replica is None or not replica.can_turn:
            return
        before = self.world.clock.now, self.world.clock.stirred
        replica.turn()
        if before == (self.world.clock.now, self.world.clock.stirred):
            replica.turn()  # the clock notices two turns in a row that neither wait nor work

    def _throw_out(self, name: str) -> None:
        """Remove a member, unless it has left by itself."""
        if name in self.broker.group.members:
            self._note(f"{name} is thrown out")
            self.broker.group.leave(name)

    def _living(self) -> list[Replica]:
        return [replica for replica in self._replicas if replica is not None and not replica.is_over]

    def _any_living(self) -> Replica | None:
        living = self._living()
        return self._dice.choice(living) if living else None

    def _any_value(self) -> bytes | None:
        if self._dice.random() < self._killers:
            return self._dice.choice([floats(KILLER), floats(1.0, KILLER), floats(HANGING)])
        if self._dice.random() < 0.6:
            return floats(*(float(self._dice.randint(0, 500)) for _ in range(self._dice.choice([1, 1, 1, 2, 5]))))
        bad = [floats(POISON), floats(1.0, NONSENSE), floats(FAULTY), floats(SHORT), b"odd", b"", None, SILENT]
        return self._dice.choice([*bad, floats(LARGE), floats(LARGE, 1.0)])

    def _any_setup(self, is_exact: bool) -> Setup:  # noqa: FBT001  # which of two worlds it is
        lanes = self._dice.randint(1, 2)
        bound = self._dice.choice([3, 20, 1000])
        setup = Setup(
            is_exact=is_exact,
            policy=BatchPolicy(max_rows=4, max_bytes=1 << 20, linger=self._dice.choice([0.0, 0.005, 0.3])),
            conduct=Conduct(lanes=lanes, inflight_batches=lanes + self._dice.randint(0, 2), revoke_timeout=1.0),
            bounds=Bounds(records=bound, rows=bound * 4, size=bound * 40),
            commit_interval=self._dice.choice([0.001, 0.02, 0.2]),
        )
        transactional_id, is_static = self._dice.choice(_IDS)
        return replace(setup, transactional_id=transactional_id, is_static=is_static, joins=self._dice.random() < 0.7)

    def _any(self, choices: Sequence[tuple[int, T]]) -> T:
        return self._dice.choice([choice for weight, choice in choices for _ in range(weight)])

    def _note(self, what: str) -> None:
        self.world.note("dice", what)
