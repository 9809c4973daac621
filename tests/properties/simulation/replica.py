"""A real worker except its clients: loop, ledger, batcher, stacker and delivery as in production.

Each of its calls to the outside is a step at which its process may die. The model runs in a host: a killer ends it when
its batch has run, and a hanging value after the limit of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.builders import CHUNK, NOTHING_HELD, STATE, SUMS, hangs, rows_model, summing_model
from tests.chunks import signature, stacker
from tests.fakes import CHANGELOG, MODEL, FakeEvents, FakeLanes, FakeSchemas, RowCodec
from tests.properties.simulation.broker import SimBroker
from tests.properties.simulation.memories import SimLink, SimRestorer, SimStore
from tests.properties.simulation.process import Died, Process, Weather, World, watched
from tests.properties.simulation.producers import SimSink, SimTransactions
from tests.properties.simulation.source import SimSource
from worker.core.batching.back_pressure import Bounds, Intake
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.deadlines import Punctuality
from worker.core.failures import RunFailure, Stop
from worker.core.ordering.order_by_key import LEDGERS, Order
from worker.core.records import Array
from worker.core.rejections import Rejections
from worker.delivery.at_least_once import AtLeastOnce
from worker.delivery.exactly_once import ExactlyOnce
from worker.delivery.last_states import EachState, LastStates
from worker.delivery.stored_states import StoringSink
from worker.loop.conduct import Conduct, Parts
from worker.loop.stateless import Stateless
from worker.loop.worker import Worker
from worker.ports import Delivery, Sink, Stage, Transactions
from worker.state import (
    ByKey,
    KeyStates,
    OutsideStates,
    OutsideValues,
    StateFetch,
    StatefulStacker,
)

Memory = Literal["changelog", "store"]


@dataclass(frozen=True)
class Setup:
    """A worker's setup. Times in seconds."""

    is_exact: bool = False
    order: Order = "partition"
    policy: BatchPolicy = field(default_factory=lambda: BatchPolicy(max_rows=3, max_bytes=1 << 20, linger=0.005))
    conduct: Conduct = field(default_factory=lambda: Conduct(revoke_timeout=2.0))
    bounds: Bounds = field(default_factory=lambda: Bounds(records=100, rows=1000, size=1 << 20))
    commit_interval: float = 0.02
    transaction_timeout: float = 1.0
    transactional_id: str | None = "replica-{n}"  # None: unique to each life
    is_static: bool = False  # the id is made from the member's instance id, which the group lets no other have
    joins: bool = True  # neighbouring records travel as one
    memory: Memory | None = None  # the place of states, where the model sums the rows of a key

    def named(self, number: int) -> Setup:
        """The setup of one replica of several: each has its own id."""
        fixed = self.transactional_id
        return self if fixed is None else replace(self, transactional_id=fixed.format(n=number))


class Signals:
    """The operator's flags. A turn's `failure` is raised where `Worker.run` would raise it."""

    def __init__(self) -> None:
        self.is_stop_asked = self.hurry_asked = False
        self.failure: Stop | None = None

    @property
    def stop_asked(self) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.is_stop_asked


class Replica:
    """One life of one worker: from its start to its end, good or bad."""

    def __init__(
        self, name: str, world: World, broker: SimBroker, store: SimStore, setup: Setup, weather: Weather
    ) -> None:
        self.process = Process(name, world, weather)
        self.setup = setup
        self._store = store
        self._world = world
        self._broker = broker
        self.lane_seconds = 0.004
        self.schemas = FakeSchemas(world.clock)
        self.failure: Stop | None = None
        self._is_over = False

    def start(self, dies_before: int | None = None, *, last_words: bool = False) -> Replica:
        """Wire the worker and join the group, unless it dies earlier."""
        self.process.dies_before, self.process.last_words = dies_before, last_words
        self._run(self._begin)
        return self

    def turn(self) -> None:
        """One turn of the loop. A `Stop` ends the life as `Worker.run` does."""
        self._run(self._turn)

    def stop(self) -> None:
        """Drain, commit and leave, as after a SIGTERM."""
        self.signals.is_stop_asked = True
        self._run(self._leave)

    def crash(self, *, last_words: bool) -> None:
        self.process.die("kill -9", last_words=last_words)

    def stall(self, seconds: float) -> None:
        """Stand still for `seconds`, as by a SIGSTOP."""
        self.process.stalled_until = self._world.clock.now + seconds

    @property
    def is_over(self) -> bool:
        return self._is_over or not self.process.is_alive

    @property
    def can_turn(self) -> bool:
        return not self.is_over and self._world.clock.now >= self.process.stalled_until

    @property
    def is_idle(self) -> bool:
        return self.delivery.is_idle and not self.ledger.records

    # The course of a life

    def _run(self, part: Callable[[], None]) -> None:
        self.process.is_running = True
        try:
            part()
        except Died:
            self._is_over = True
        finally:
            self.process.is_running = False

    def _begin(self) -> None:
        self._wire()
        self.client.subscribe(self.worker)

    def _turn(self) -> None:
        try:
            self.worker.turn()
        except Stop as failure:
            self.failure = failure
            self._world.note(self.process.name, f"stops: {failure!r}")
            self.signals.failure = failure
            self._leave()

    def _leave(self) -> None:
        try:
            self.worker.run()
        except Stop as failure:
            self.failure = failure
            self._world.note(self.process.name, f"stopped: {failure!r}")
        self._is_over = True
        self.process.die("it is over", last_words=True)

    def _wire(self) -> None:
        process, setup, clock = self.process, self.setup, self._world.clock
        self.source = SimSource(process, self._broker)
        self.client = watched(process, self.source)
        self.lanes = FakeLanes(self._infer, clock, setup.conduct.lanes)
        self.lanes.seconds = lambda: self.lane_seconds
        self.lanes.hangs = hangs
        self.lanes.run_timeout = 0.2
        self.events = FakeEvents()
        self.signals = Signals()
        self.ledger = LEDGERS[setup.order]()
        self.codec = RowCodec(joins=setup.joins, keeps_order=setup.memory is not None, schemas=self.schemas)
        punctuality = Punctuality(clock, setup.conduct.lanes)
        self.batcher = Batcher({MODEL: setup.policy}, punctuality.needed)
        self.states: KeyStates | None = None
        stage: Stage = self.batcher
        a_stacker = stacker()
        sink: Sink = watched(process, SimSink(process, self._broker))
        if setup.memory is not None:
            self.states, stage, sink = self._remembering(setup.memory, sink)
            a_stacker = StatefulStacker(signature(), gives=SUMS, states=self.states)
        self.delivery: Delivery = self._exactly_once() if setup.is_exact else self._at_least_once(sink)
        parts = Parts(
            source=self.client,
            codec=self.codec,
            ledger=self.ledger,
            intake=Intake(setup.bounds, self.ledger, CHUNK),
            stage=stage,
            batcher=self.batcher,
            stackers={MODEL: a_stacker},
            lanes=watched(process, self.lanes),
            punctuality=punctuality,
            delivery=self.delivery,
            rejections=Rejections(),
            events=self.events,
            signals=self.signals,
            conduct=setup.conduct,
            clock=clock,
            states=self.states or Stateless(),
            first=NOTHING_HELD,
            schemas=self.schemas,
        )
        self.worker = Worker(parts)

    def _remembering(self, memory: Memory, sink: Sink) -> tuple[KeyStates, ByKey, Sink]:
        process, setup, clock = self.process, self.setup, self._world.clock
        if memory == "changelog":
            restorer = watched(process, SimRestorer(process, self._broker, STATE, is_exact=setup.is_exact))
            back = setup.is_exact
            states = KeyStates(
                STATE, self.ledger, restorer, self.events, topic=CHANGELOG, can_take_back=back, clock=clock
            )
            return states, ByKey(self.batcher), EachState(sink, states.leave, clock)
        link = watched(process, SimLink(process, self._store))
        outside = OutsideStates(STATE, self.ledger, link, self.events, most_in_memory=2)
        by_key = ByKey(StateFetch(self.batcher, outside, clock))
        outside.is_taken = by_key.is_taken
        return outside, by_key, StoringSink(sink, outside.leave, link, OutsideValues(STATE))

    def _at_least_once(self, sink: Sink) -> AtLeastOnce:
        return AtLeastOnce(
            ledger=self.ledger,
            encoder=self.codec,
            sink=sink,
            offsets=self.client,
            events=self.events,
            commit_interval=self.setup.commit_interval,
            clock=self._world.clock,
        )

    def _exactly_once(self) -> ExactlyOnce:
        fixed = self.setup.transactional_id
        transactions: Transactions = SimTransactions(
            self.process,
            self._broker,
            fixed or self.process.name,
            self.setup.transaction_timeout,
            lambda: self.source.member,
            is_unique=fixed is None or self.setup.is_static,
        )
        transactions = watched(self.process, transactions)
        return ExactlyOnce(
            ledger=self.ledger,
            encoder=self.codec,
            transactions=transactions if self.states is None else LastStates(transactions, self.states.leave),
            events=self.events,
            commit_interval=self.setup.commit_interval,
            clock=self._world.clock,
        )

    def _infer(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        if not self.process.is_alive:
            return RunFailure("the process ends with it")
        return rows_model(feeds) if self.states is None else summing_model(feeds)

    def __repr__(self) -> str:
        return f"<Replica {self.process} {getattr(self, 'ledger', None)}>"
