"""Builders with defaults, so that a test shows only what matters to it, and a whole worker among fakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tests.chunks import P0, P1, Q0, signature
from tests.fakes import (
    CHANGELOG,
    MODEL,
    Broker,
    Clock,
    FakeEvents,
    FakeLanes,
    FakeOutsideStore,
    FakeRestorer,
    FakeSchemas,
    FakeSignals,
    FakeSink,
    FakeSource,
    FakeStore,
    FakeTransactions,
    Model,
    Newcomer,
    RowCodec,
)
from worker.codecs.codec import Codec
from worker.codecs.wire_contract import Wire
from worker.core.batching.back_pressure import Bounds, Intake
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.chunk import Batch
from worker.core.deadlines import Punctuality
from worker.core.failures import Code, RowFault, RunFailure, failure_of_rows
from worker.core.ordering.order_by_key import LEDGERS, Order
from worker.core.records import Array, Message, Partition
from worker.core.rejections import FirstRejections, Rejections
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.core.tensors.stacking import Stacker
from worker.delivery.at_least_once import AtLeastOnce
from worker.delivery.exactly_once import ExactlyOnce
from worker.delivery.last_states import EachState, LastStates
from worker.delivery.stored_states import StoringSink
from worker.loop.conduct import Conduct, Parts
from worker.loop.stateless import Stateless
from worker.loop.worker import Worker
from worker.ports import Sink, Stage, States, Transactions
from worker.state import (
    ByKey,
    KeyStates,
    OutsideStates,
    OutsideValues,
    StateFetch,
    StatefulStacker,
    StateLayout,
)
from worker.state.layout import StateTensor

# Values on which `rows_model` misbehaves.
POISON = 666.0  # the run fails
NONSENSE = 777.0  # the row's output is NaN
FAULTY = 555.0  # the row gets no result
LARGE = 444.0  # the row is left for a later run, while others are not
SHORT = 888.0  # the output has a row too few
KILLER = 997.0  # the host of the model ends when the batch has run
HANGING = 998.0  # the batch does not end: its host is killed
FAULT = "its value is faulty"
ENDED = "the process of the model ended"  # the failure of either

POLICY = BatchPolicy(max_rows=4, max_bytes=1 << 20, linger=0.005)
BOUNDS = Bounds(records=100, rows=1000, size=1 << 20)
CONDUCT = Conduct()
NOTHING_HELD = FirstRejections(Newcomer(), lambda _: None, "x", lambda _: "no", is_exact=False, is_over=True)
CHUNK = 512  # records of one poll, at most


def hangs(batch: Batch) -> bool:
    """True if a row of the batch hangs."""
    return bool((batch.feeds["x"] == HANGING).any())


def rows_model(feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
    """Doubles every row, except the values above."""
    x = feeds["x"]
    if ((x == KILLER) | (x == HANGING)).any():
        return RunFailure(ENDED, ended_host=True)
    if (outcome := parted(rows_model, feeds)) is not None:
        return outcome
    if (x == POISON).any():
        return RunFailure("poisoned")
    if (x == SHORT).any():
        return [x[1:] * 2]
    return [np.where(x == NONSENSE, np.nan, x * 2).astype("<f4")]


def parted(model: Model, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure | None:
    """The run of a batch with faulty or large rows, by this model of the others; None: it has none."""
    is_faulty, is_large = ((feeds["x"] == value).any(axis=1) for value in (FAULTY, LARGE))
    large = np.flatnonzero(is_large & ~is_faulty).tolist()
    well = np.flatnonzero(~is_large & ~is_faulty).tolist()
    if not well:
        well, large = large[:1], large[1:]
    if len(well) == len(feeds["x"]):
        return None
    faults = dict.fromkeys(np.flatnonzero(is_faulty).tolist(), RowFault(Code.INVALID_ARGUMENT, FAULT))
    outcome = model({name: array[well] for name, array in feeds.items()}) if well else None
    if isinstance(outcome, RunFailure):
        return failure_of_rows(faults, large) if faults else outcome
    return failure_of_rows(faults, large, outcome)


def summing_model(feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
    """Gives the sum of all values of a key, also as its next state; misbehaves as `rows_model` does."""
    x, before = feeds["x"], feeds["sum"]
    if ((x == KILLER) | (x == HANGING)).any():
        return RunFailure(ENDED, ended_host=True)
    if (outcome := parted(summing_model, feeds)) is not None:
        return outcome
    if (x == POISON).any():
        return RunFailure("poisoned")
    if (x == SHORT).any():
        return [x[1:], x[1:]]
    after = (x + before).astype("<f4")
    return [np.where(x == NONSENSE, np.nan, after).astype("<f4"), np.where(x == SPOILT, np.nan, after).astype("<f4")]


SPOILT = 999.0  # the next state is NaN
SUMS = (TensorSpec("y", "FP32", (1,)), TensorSpec("next", "FP32", (1,)))
STATE = StateLayout((StateTensor(TensorSpec("sum", "FP32", (1,)), "next"),), (np.zeros(1, "<f4"),))


def names(*offsets: int) -> list[str]:
    """The sources of these records of P0."""
    return [f"{P0}/{offset}" for offset in offsets]


def sources(messages: Sequence[Message]) -> list[str]:
    """Names the records that these messages answer, by their `source` header."""
    return [(dict(m.headers)["source"] or b"").decode() for m in messages]


@dataclass
class World:
    """A worker among fakes; a test can reach each of its parts. `start()` subscribes and assigns."""

    clock: Clock = field(default_factory=Clock)
    broker: Broker = field(default_factory=Broker)
    policy: BatchPolicy = POLICY
    bounds: Bounds = BOUNDS
    conduct: Conduct = CONDUCT
    chunk: int = CHUNK
    model: Model | None = None  # None: `rows_model`, or `summing_model` with state
    wire: Wire | None = None  # None: `RowCodec` reads and writes
    served: Signature = field(default_factory=signature)
    commit_interval: float = 0.2
    dead_letters: bool = True
    exactly_once: bool = False
    order: Order = "partition"
    joins: bool = False
    rejection_limit: int | None = None
    first: FirstRejections = NOTHING_HELD
    has_state: bool = False  # one number for each key: `summing_model`
    ttl: float | None = None
    missing: str = "zeros"
    store: FakeStore | None = None
    most_in_memory: int = 0
    is_outside: bool = False  # states are kept in an outside store
    outside: FakeOutsideStore | None = None  # a given one is that of an earlier worker
    keeps: bool = False  # the store keeps its content from a clean end to the next start

    def __post_init__(self) -> None:
        self.source = FakeSource(self.broker, self.clock)
        self.sink = FakeSink(self.broker, self.clock)
        self.transactions = FakeTransactions(self.broker, self.clock, self.source)
        self.lanes = FakeLanes(
            self.model or (summing_model if self.has_state else rows_model), self.clock, self.conduct.lanes
        )
        self.lanes.hangs = hangs
        self.events = FakeEvents()
        self.signals = FakeSignals()
        self.schemas = FakeSchemas(self.clock)
        self.ledger = LEDGERS[self.order]()
        self.punctuality = Punctuality(self.clock, self.conduct.lanes)
        self.policies = {MODEL: replace(self.policy, buckets=self.served.buckets)}
        self.batcher = Batcher(self.policies, self.punctuality.needed)
        self.intake = Intake(self.bounds, self.ledger, self.chunk)
        rejections = Rejections(self.rejection_limit)
        self.codec: Codec | RowCodec = (
            RowCodec(
                dead_letters=self.dead_letters,
                joins=self.joins,
                keeps_order=self.has_state,
                rejections=rejections,
                tell=self.events.rejected,
                schemas=self.schemas,
            )
            if self.wire is None
            else Codec([self.served], self.wire, self.events.rejected, rejections)
        )
        self.states: States = Stateless()
        self.stage: Stage = self.batcher
        a_stacker = Stacker(self.served)
        if self.has_state:
            self.restorer = FakeRestorer(self.broker, STATE, is_exact=self.exactly_once, date=self.clock)
            states = KeyStates(
                STATE,
                self.ledger,
                self.restorer,
                self.events,
                topic=CHANGELOG,
                ttl=self.ttl,
                can_take_back=self.exactly_once,
                store=self.store,
                most_in_memory=self.most_in_memory,
                keeper=self.store if self.keeps else None,
                clock=self.clock,
                date=self.clock,
            )
            self.by_key = ByKey(self.batcher)
            if self.is_outside:
                states, self.by_key = self._kept_outside()
            self.states = self.key_states = states
            self.stage = self.by_key
            states.is_taken = self.by_key.is_taken
            refuse = self.missing == "refuse"
            a_stacker = StatefulStacker(signature(), gives=SUMS, states=states, refuse_missing=refuse)
        self.stackers = {MODEL: a_stacker}
        self.delivery = self._exactly_once() if self.exactly_once else self._at_least_once()
        parts = Parts(
            source=self.source,
            codec=self.codec,
            ledger=self.ledger,
            intake=self.intake,
            batcher=self.batcher,
            stage=self.stage,
            stackers=self.stackers,
            lanes=self.lanes,
            punctuality=self.punctuality,
            delivery=self.delivery,
            rejections=rejections,
            events=self.events,
            signals=self.signals,
            conduct=self.conduct,
            clock=self.clock,
            states=self.states,
            first=self.first,
            schemas=self.schemas,
        )
        self.worker = Worker(parts)
        self.admission = self.worker._admission

    def _kept_outside(self) -> tuple[OutsideStates, ByKey]:
        former, self.outside = self.outside, FakeOutsideStore(self.clock)
        self.outside.values = former.values if former is not None else {}
        states = OutsideStates(
            STATE,
            self.ledger,
            self.outside,
            self.events,
            most_in_memory=self.most_in_memory or 1024,
            ttl=self.ttl,
            date=self.clock,
        )
        self.fetch = StateFetch(self.batcher, states, self.clock)
        return states, ByKey(self.fetch)

    def _at_least_once(self) -> AtLeastOnce:
        sink: Sink = self.sink
        if self.outside is not None:
            sink = StoringSink(sink, self.key_states.leave, self.outside, OutsideValues(STATE))
        elif self.has_state:
            sink = EachState(sink, self.key_states.leave, self.clock)
        return AtLeastOnce(
            ledger=self.ledger,
            encoder=self.codec,
            sink=sink,
            offsets=self.source,
            events=self.events,
            commit_interval=self.commit_interval,
            clock=self.clock,
        )

    def _exactly_once(self) -> ExactlyOnce:
        sent: Transactions = self.transactions
        if self.has_state:
            sent = LastStates(sent, self.key_states.leave)
        return ExactlyOnce(
            ledger=self.ledger,
            encoder=self.codec,
            transactions=sent,
            events=self.events,
            commit_interval=self.commit_interval,
            clock=self.clock,
        )

    def start(self, *partitions: Partition) -> World:
        """Join the group, which assigns these partitions at the next turn."""
        self.source.subscribe(self.worker)
        self.source.assign(*(partitions or (P0, P1, Q0)))
        return self

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.worker.turn()

    def turn_for(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.worker.turn()

    def turn_until(self, is_so: Callable[[], object]) -> None:
        while not is_so():
            self.worker.turn()

    def answered(self, status: str | None = None) -> list[str]:
        """The sources of the acknowledged answers, without dead letters."""
        return sources(
            [
                m
                for m in self.broker.answers
                if m.topic == "responses" and status in (None, (dict(m.headers)["status"] or b"").decode())
            ]
        )
