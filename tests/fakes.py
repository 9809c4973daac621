"""Fakes of Kafka, the lanes, the operator and the clock: one world in which only waiting moves the time.

`Clock` holds what will happen and when. A fake that is waited on lets the clock run to the next of these events, so a
test takes no real time and its order of events is the script's. Each fake keeps the promises of `worker/ports.py`. A
test sets from outside what goes wrong: slow, lost and refused reports, failed commits, rebalances.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, groupby
from typing import Literal, NamedTuple

import numpy as np

from worker.core.chunk import Batch, Chunk, Finished, Prediction, Reading, Waiting
from worker.core.failures import Code, KafkaFatal, RunFailure
from worker.core.ordering.ledger import Stretch
from worker.core.records import (
    Answer,
    Array,
    CommitResult,
    Ending,
    Fields,
    Message,
    ModelKey,
    Partition,
    Record,
    Rejection,
    ReplyForm,
    Standing,
    StateUse,
    Timeout,
)
from worker.core.rejections import Rejections
from worker.core.schemas import RegisteredSchema, SchemaName, UnknownSchema
from worker.core.stalls import Stall
from worker.ports import Assignments
from worker.state import Extent, Restoration, RestoredRows, StateLayout, tombstone_of, why_not
from worker.state.outside_states import Asked
from worker.state.outside_values import Change

MODEL = ModelKey("m", "1")


class Clock:
    """Monotonic seconds and the events to come. `stirred` counts past events, so that a spin can be seen."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.stirred = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def __call__(self) -> float:
        return self.now

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Schedule the event for this time. A time in the past means the next wait."""
        heapq.heappush(self._events, (max(when, self.now), next(self._numbers), event))

    def wait(self, timeout: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let the time run for so long, or until the condition holds. Events that are due now happen in any case."""
        deadline = self.now + timeout
        self._let_happen(self.now)
        while not until() and self._events and self._events[0][0] <= deadline:
            self._let_happen(self._events[0][0])
        if not until():
            self.now = deadline

    def _let_happen(self, now: float) -> None:
        self.now = now
        while self._events and self._events[0][0] <= now:
            self.stirred += 1
            heapq.heappop(self._events)[2]()


CHANGELOG = "changelog"  # the topic of states


class Broker:
    """Topics, committed offsets and answers: everything that outlives a worker."""

    def __init__(self) -> None:
        self.logs: dict[Partition, list[Record]] = {}
        self.markers: dict[Partition, set[int]] = {}  # offsets that hold no record
        self.committed: dict[Partition, int] = {}
        self.answers: list[Message] = []  # acknowledged or committed, in that order
        self.compacted: set[int] = set()  # records of the changelog, by identity

    def append(self, *records: Record) -> None:
        """Add records. Offsets must grow within a partition; gaps stand for compaction."""
        for record in records:
            self.logs.setdefault(record.partition, []).append(record)

    def changelog(self, partition: Partition) -> list[Message | None]:
        """The changelog's records of the partition, with None for each that was compacted away."""
        ours = [m for m in self.answers if m.topic == CHANGELOG and m.source_partition == partition.number]
        return [None if id(message) in self.compacted else message for message in ours]

    def compact(self, partition: Partition, *, with_tombstones: bool = True) -> None:
        """Keep the last record of each key. Tombstones are removed as well, unless `with_tombstones` is false."""
        there = [message for message in self.changelog(partition) if message is not None]
        last = {message.key: id(message) for message in there}
        self.compacted |= {id(m) for m in there if last[m.key] != id(m) or (m.value is None and with_tombstones)}

    def end(self, partition: Partition) -> int:
        log = self.logs.get(partition)
        return log[-1].offset + 1 if log else 0

    def after(self, partition: Partition, offset: int) -> list[Record]:
        return [record for record in self.logs.get(partition, ()) if record.offset >= offset]


class CommitFate(NamedTuple):
    """How a commit ends: whether Kafka takes it, and after how many seconds the result comes (None: never)."""

    is_taken: bool = True
    heard_after: float | None = 0.003


class FakeSource:
    """A consumer of the `Broker`. `rebalance()` queues callbacks for the next poll."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._assignments: Assignments | None = None
        self._rebalances: deque[Callable[[], None]] = deque()
        self._results: list[CommitResult] = []
        self.next_offsets: dict[Partition, int] = {}  # of the assigned partitions
        self._started_at: dict[Partition, int] = {}
        self.commit_fate: Callable[[], CommitFate] = CommitFate
        self.commits: list[dict[Partition, int]] = []
        self._not_begun: set[Partition] = set()  # assigned, but no record has come yet
        self.rewound: list[Sequence[Partition]] = []
        self.held: set[Partition] = set()
        self.polls: list[tuple[int, float]] = []
        self.is_paused = self.is_closed = False
        self.lost_power = False  # the process that owns this consumer died: nothing more is committed

    def subscribe(self, assignments: Assignments) -> None:
        self._assignments = assignments

    @property
    def is_subscribed(self) -> bool:
        return self._assignments is not None

    def assign(self, *partitions: Partition) -> None:
        self._rebalances.append(lambda: self._assign(partitions))

    def revoke(self, *partitions: Partition) -> None:
        self._rebalances.append(lambda: self._revoke(partitions))

    def lose(self, *partitions: Partition) -> None:
        self._rebalances.append(lambda: self._lose(partitions))

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        assert max_records >= 1
        self.polls.append((max_records, timeout))
        self._clock.wait(0.0)
        while self._rebalances:
            self._clock.stirred += 1
            self._rebalances.popleft()()
        self._clock.wait(timeout, self._has_records)
        records = self._fetch(max_records)
        self._clock.stirred += len(records)
        return records

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._clock.stirred += 1
        self.commits.append(dict(offsets))
        for partition in offsets:
            assert partition in self.next_offsets, f"{partition} is not ours to commit"
        fate = self.commit_fate()
        if fate.is_taken:
            self._broker.committed.update(offsets)
        if fate.heard_after is not None:
            result = CommitResult(offsets, {}) if fate.is_taken else CommitResult({}, dict.fromkeys(offsets, "refused"))
            self._clock.at(self._clock.now + fate.heard_after, lambda: self._results.append(result))

    def commit_results(self) -> Sequence[CommitResult]:
        results, self._results = self._results, []
        return results

    def rewind(self, partitions: Sequence[Partition]) -> None:
        self._clock.stirred += 1
        self.rewound.append(partitions)
        self.held.difference_update(partitions)
        for partition in self.next_offsets.keys() & set(partitions):
            at = self._broker.committed.get(partition, self._started_at[partition])
            self.next_offsets[partition] = self._started_at[partition] = at

    def hold(self, partition: Partition, offset: int) -> None:
        self._clock.stirred += 1
        assert partition in self.next_offsets, f"{partition} is not ours to hold"
        self.next_offsets[partition] = self._started_at[partition] = offset
        self.held.add(partition)

    def release(self, partition: Partition) -> None:
        self._clock.stirred += 1
        self.held.discard(partition)

    def positions(self) -> Mapping[Partition, int]:
        return {p: at for p in self._at_rest() if (at := self._past_markers(p)) > self._started_at[p]}

    def close(self) -> None:
        self.is_closed = True
        self._revoke(tuple(self.next_offsets))

    def leave(self) -> None:
        self.is_closed = True

    def _has_records(self) -> bool:
        return any(self._broker.end(p) > at for p, at in self._flowing())

    def _at_rest(self) -> Iterable[Partition]:
        return [p for p in self.next_offsets if self._is_open(p) and not self._broker.after(p, self._position(p))]

    def _past_markers(self, partition: Partition) -> int:
        while self.next_offsets[partition] in self._broker.markers.get(partition, ()):
            self.next_offsets[partition] += 1
        return self.next_offsets[partition]

    def _flowing(self) -> list[tuple[Partition, int]]:
        return [] if self.is_paused else [(p, self._position(p)) for p in self.next_offsets if self._is_open(p)]

    def _is_open(self, partition: Partition) -> bool:
        if partition in self.held:
            return False
        return partition not in self._not_begun or not self._told().is_in_doubt(partition)

    def _position(self, partition: Partition) -> int:
        """The next offset. Before a partition's first record, the group's committed offset counts too."""
        committed = self._broker.committed.get(partition, 0) if partition in self._not_begun else 0
        return max(self.next_offsets[partition], committed)

    def _fetch(self, most: int) -> list[Record]:
        fetched: list[Record] = []
        for partition, position in self._flowing():
            records = self._broker.after(partition, position)[: most - len(fetched)]
            if records:
                fetched += records
                self.next_offsets[partition] = records[-1].offset + 1
                self._not_begun.discard(partition)
        return fetched

    def _assign(self, partitions: Iterable[Partition]) -> None:
        new = [p for p in partitions if p not in self.next_offsets]
        self.next_offsets.update((p, self._broker.committed.get(p, 0)) for p in new)
        self._started_at.update((p, self.next_offsets[p]) for p in new)
        self._not_begun.update(new)
        self._told().assigned(new)

    def _revoke(self, partitions: Iterable[Partition]) -> None:
        held = [p for p in partitions if p in self.next_offsets]
        if held:
            self._told().revoked(held)
            self._drop(held)

    def _lose(self, partitions: Iterable[Partition]) -> None:
        held = [p for p in partitions if p in self.next_offsets]
        self._drop(held)  # before the callback: a commit in it would be refused
        self._told().lost(held)

    def _drop(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            del self.next_offsets[partition]
            self._not_begun.discard(partition)
            self.held.discard(partition)

    def _told(self) -> Assignments:
        assert self._assignments is not None
        return self._assignments


class FakeSink:
    """A producer. Reports are in order only within an output partition; `delay` says how late each one is."""

    def __init__(self, broker: Broker, clock: Clock, partitions: int = 3) -> None:
        self._broker = broker
        self._clock = clock
        self._partitions = partitions
        self._last_report: dict[tuple[str, int], float] = {}
        self._reports: list[Stretch] = []
        self.sent: list[Message] = []
        self.sent_for: list[Stretch] = []  # the places of each message in `sent`
        self.pushed: list[int] = []  # how many messages had been sent at each push
        self.delay: Callable[[Message], float] = lambda _: 0.002
        self.refusal: str | None = None  # the next message is refused by the broker for good
        self.lost_power = False  # the process that owns this producer died: nothing is acknowledged any more

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        self._clock.stirred += 1
        unheard = list(messages)
        if not messages:
            self._reports.append(stretch)
        for message in map(Message._make, messages):
            self.sent.append(message)
            self.sent_for.append(stretch)
            if self.refusal is not None:
                self._clock.at(self._clock.now, lambda: self._reports.append(stretch))
                return
            number = message.source_partition if message.key is None else sum(message.key)
            number = number if message.partition is None else message.partition
            output = (message.topic, number % self._partitions)
            when = max(self._clock.now + self.delay(message), self._last_report.get(output, 0.0))
            self._last_report[output] = when
            self._clock.at(when, partial(self._acknowledge, message, stretch, unheard))

    def poll(self, timeout: float) -> Sequence[Stretch]:
        self._clock.wait(timeout, lambda: bool(self._reports))
        reports, self._reports = self._reports, []
        if reports and self.refusal is not None:
            raise KafkaFatal(self.refusal)
        return reports

    def push(self) -> None:
        self.pushed.append(len(self.sent))
        self._clock.wait(0.001, lambda: bool(self._reports))

    def _acknowledge(self, message: Message, stretch: Stretch, unheard: list[Fields]) -> None:
        if self.lost_power:
            return
        self._broker.answers.append(message)
        unheard.pop()
        if not unheard:
            self._reports.append(stretch)


class TransactionFate(NamedTuple):
    """How a transaction ends: is it committed, what the worker hears (None: success), and after how many seconds.

    A commit that is reported as a failure is an end in doubt.
    """

    is_committed: bool = True
    failure: str | None = None
    heard_after: float = 0.006


class FakeTransactions:
    """A transactional producer of the consumer's group. A member cannot commit partitions that it no longer holds."""

    def __init__(self, broker: Broker, clock: Clock, source: FakeSource) -> None:
        self._broker = broker
        self._clock = clock
        self._source = source
        self._ending: Ending | None = None
        self._failed: str | None = None
        self.inside: list[Message] = []
        self.is_open = self.is_ending = False
        self.commits: list[tuple[list[Message], dict[Partition, int]]] = []
        self.fate: Callable[[], TransactionFate] = TransactionFate
        self.lost_power = False  # the process that owns this producer died: nothing is committed any more

    def begin(self) -> None:
        assert not self.is_open
        self._clock.stirred += 1
        self.is_open = True

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None:
        assert self.is_open
        assert not self.is_ending
        self._clock.stirred += 1
        self.inside += map(Message._make, messages)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self.commits.append((self.inside, dict(offsets)))
        fate, inside, offsets = self.fate(), self.inside, dict(offsets)
        self._end(fate, lambda: self._take(fate, inside, offsets))

    def abort(self) -> None:
        self._end(TransactionFate(is_committed=False, failure="taken back"), lambda: None)

    def ended(self, timeout: float) -> Ending | None:
        assert self.is_ending
        self._clock.wait(timeout, lambda: self._ending is not None)
        ending, self._ending = self._ending, None
        if ending is not None:
            self.inside = []
            self.is_open = self.is_ending = False
        return ending

    def serve(self, timeout: float) -> None:
        assert not self.is_ending
        self._clock.wait(timeout)

    def _end(self, fate: TransactionFate, effect: Callable[[], None]) -> None:
        assert self.is_open
        assert not self.is_ending
        self._clock.stirred += 1
        self.is_ending = True
        self._clock.at(self._clock.now + fate.heard_after / 2, effect)
        self._clock.at(self._clock.now + fate.heard_after, lambda: self._hear(fate))

    def _take(self, fate: TransactionFate, inside: list[Message], offsets: dict[Partition, int]) -> None:
        if self.lost_power or not fate.is_committed:
            return
        if offsets.keys() <= self._source.next_offsets.keys():
            self._broker.answers += inside
            self._broker.committed.update(offsets)
        else:
            self._failed = "fenced off by the group"

    def _hear(self, fate: TransactionFate) -> None:
        failed, self._failed = self._failed, None
        self._ending = Ending(failed or fate.failure, fate.heard_after)


@dataclass
class Newcomer:
    """A group that has served, or not, as the test says."""

    has_served: bool = False
    stood_back: list[dict[Partition, int | None]] = field(default_factory=list)

    def stand_back(self, instead: Mapping[Partition, int | None]) -> None:
        self.stood_back.append(dict(instead))


Model = Callable[[Mapping[str, Array]], Sequence[Array] | RunFailure]
WarmUp = Literal["warm-up batch"]


class FakeLanes:
    """Lanes that need `seconds` of the clock for a run. `is_broken`: every run fails, the warm-up batch too.

    All models compute the same; every run of the `broken` one fails. A run that `hangs` takes `run_timeout`. The lanes
    are in a host, which ends where the model gives a failure that says so: all batches that it runs fail with it. The
    next host begins `start_seconds` later with the batches that wait. Between two that run alone go others.
    """

    more_ahead = 0

    def __init__(self, model: Model, clock: Clock, lanes: int = 1) -> None:
        self._model = model
        self._clock = clock
        self._lanes = lanes
        self._running: dict[int, Batch | WarmUp] = {}  # by the number of its start
        self._numbers = count()
        self._begins_at = 0.0  # the next host
        self._waiting: deque[Batch | WarmUp] = deque()
        self._alone: deque[Batch] = deque()
        self._giving_way: deque[Batch] = deque()
        self._spared: set[int] = set()  # batches that ran alone when their host was killed, by identity
        self._turn = 0  # batches that may go before the next one that runs alone
        self._home: list[Finished] = []
        self._batches_out = self._probes_out = self._giving_way_out = 0
        self.began: list[tuple[Batch, float]] = []
        self.ran: list[Batch] = []
        self.probes = 0
        self.seconds: Callable[[], float] = lambda: 0.004
        self.hangs: Callable[[Batch], bool] = lambda _: False
        self.run_timeout, self.start_seconds = 1.0, 0.05
        self.hosts = 1
        self.is_broken = False

    @property
    def in_flight(self) -> int:
        return self._batches_out - len(self._alone) - self._giving_way_out

    @property
    def is_busy(self) -> bool:
        return len(self._home) < self._batches_out + self._probes_out

    def submit(self, batch: Batch) -> None:
        self._clock.stirred += 1
        self._batches_out += 1
        self._waiting.append(batch)
        self._start()

    def resubmit(self, halves: Sequence[Batch]) -> None:
        self._clock.stirred += 1
        self._batches_out += len(halves)
        self._waiting.extendleft(reversed([half for half in halves if not (half.is_alone or half.gives_way)]))
        self._alone += [half for half in halves if half.is_alone]
        self._giving_way += [half for half in halves if half.gives_way]
        self._giving_way_out += sum(half.gives_way for half in halves)
        self._start()

    def probe(self) -> None:
        self._clock.stirred += 1
        self.probes += 1
        self._probes_out += 1
        self._waiting.appendleft("warm-up batch")
        self._start()

    def finished(self, timeout: float) -> Sequence[Finished]:
        if not self._batches_out + self._probes_out:
            return ()
        self._clock.wait(timeout, lambda: bool(self._home))
        home, self._home = self._home, []
        for finished in home:
            if finished.batch is None:
                self._probes_out -= 1
            else:
                self._batches_out -= 1
                self._giving_way_out -= finished.batch.gives_way
        return home

    def kill_host(self, why: str) -> Sequence[Batch]:
        """Kill the host from outside. Returns the batches that fail: one that ran alone runs again the first time."""
        spared = {n: b for n, b in self._running.items() if _is_alone(b) and id(b) not in self._spared}
        self._spared.update(map(id, spared.values()))
        self._alone.extendleft(self._running.pop(number) for number in spared)  # type: ignore[misc]  # batches
        return self._end_host(why)

    def _end_host(self, why: str) -> Sequence[Batch]:
        """Let what the host ran fail, except a warm-up batch, which runs again. Returns the batches that fail."""
        ended = [*self._running.values()]
        self._running.clear()
        failure, batches = RunFailure(why, ended_host=True), [item for item in ended if isinstance(item, Batch)]
        self._home += [Finished(batch, None, failure, 0.0) for batch in batches]
        self._waiting.extendleft(item for item in ended if not isinstance(item, Batch))
        self.hosts += 1
        self._begins_at = self._clock.now + self.start_seconds
        self._clock.at(self._begins_at, self._start)
        return batches

    def _start(self) -> None:
        while self._clock.now >= self._begins_at and (item := self._next()) is not None:
            number = next(self._numbers)
            self._running[number] = item
            seconds = self.seconds()
            if isinstance(item, Batch):
                self.began.append((item, self._clock.now))
                seconds = self.run_timeout if self.hangs(item) else seconds
            self._clock.at(self._clock.now + seconds, lambda n=number, s=seconds: self._finish(n, s))  # type: ignore[misc]

    def _next(self) -> Batch | WarmUp | None:
        if any(map(_is_alone, self._running.values())):
            return None
        if self._alone and not (self._turn and self._waiting):
            if self._running:
                return None
            self._turn = self._lanes
            return self._alone.popleft()
        if len(self._running) >= self._lanes:
            return None
        if not self._waiting:
            return self._giving_way.popleft() if self._giving_way else None
        self._turn -= self._turn > 0
        return self._waiting.popleft()

    def _finish(self, number: int, seconds: float) -> None:
        item = self._running.get(number)
        if item is None:  # its host has ended
            return
        batch = item if isinstance(item, Batch) else None
        outcome: Sequence[Array] | RunFailure = ()
        if self.is_broken:
            outcome = RunFailure("the device is gone")
        elif batch is not None:
            self.ran.append(batch)
            outcome = self._model(batch.all_feeds)
        outputs, failure = (None, outcome) if isinstance(outcome, RunFailure) else (outcome, None)
        if failure is not None and failure.ended_host:
            self._end_host(failure.message)
            return
        del self._running[number]
        self._home.append(Finished(batch, outputs, failure, seconds))
        self._start()


def _is_alone(item: Batch | WarmUp) -> bool:
    return isinstance(item, Batch) and item.is_alone


class FakeSignals:
    """The operator's flags, set by hand."""

    def __init__(self) -> None:
        self.stop_asked = False
        self.hurry_asked = False


class FakeEvents:
    """Remembers what it was told: `counted[name]` calls, and the details that tests ask for."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.closed: list[tuple[Batch, float]] = []
        self.failures: list[str] = []  # the messages of failed batches
        self.rejections: list[Rejection] = []
        self.revocations: list[tuple[Sequence[Partition], float, int]] = []
        self.probes: list[str | None] = []
        self.lost_rows: list[str] = []
        self.pauses: list[bool] = []
        self.restored_keys: list[tuple[Partition, int, float]] = []
        self.thrown: list[tuple[Partition, str]] = []
        self.passed_over: list[tuple[Partition, int]] = []
        self.left_behind: list[int | str] = []
        self.settled_at: list[float] = []
        self.commit_results: list[CommitResult] = []
        self.endings: list[tuple[Ending, int]] = []
        self.troubles: list[str | None] = []
        self.applied: list[tuple[Record, int]] = []
        self.standing: list[tuple[Partition, str, str | None]] = []
        self.gone_on: list[tuple[Partition, float]] = []

    def waits_for_schema(self, partition: Partition, schema: str, why: str | None) -> None:
        self.standing.append((partition, schema, why))

    def goes_on(self, partition: Partition, seconds: float) -> None:
        self.gone_on.append((partition, seconds))

    def store_troubled(self, why: str | None) -> None:
        self.troubles.append(why)

    def applied_before(self, record: Record, count: int) -> None:
        self.applied.append((record, count))

    def assigned(self, partitions: Sequence[Partition]) -> None:
        self.counted["assigned"] += 1

    def revoked(self, partitions: Sequence[Partition], seconds: float, unsettled: int) -> None:
        self.revocations.append((partitions, seconds, unsettled))

    def lost(self, partitions: Sequence[Partition], unsettled: int) -> None:
        self.counted["lost"] += 1
        self.counted["lost unsettled"] += unsettled

    def rewound(self, partitions: Sequence[Partition]) -> None:
        self.counted["rewound"] += 1

    def foreign_states(self, partition: Partition, count: int) -> None:
        self.passed_over.append((partition, count))

    def thrown_away(self, partition: Partition, why: str) -> None:
        self.thrown.append((partition, why))

    def kept(self, states: int, seconds: float) -> None:
        self.left_behind.append(states)

    def not_kept(self, why: str) -> None:
        self.left_behind.append(why)

    def restored(self, partition: Partition, keys: int, seconds: float) -> None:
        self.restored_keys.append((partition, keys, seconds))

    def taken(self, records: int) -> None:
        self.counted["taken"] += records

    def unanswered(self, records: int) -> None:
        self.counted["unanswered"] += records

    def batch_closed(self, batch: Batch, waited: float) -> None:
        self.closed.append((batch, waited))

    def batch_ran(self, rows: int, seconds: float, failure: str | None) -> None:
        self.counted["ran" if failure is None else "failed"] += 1
        if failure is not None:
            self.failures.append(failure)

    def rejected(self, rejection: Rejection) -> None:
        self.rejections.append(rejection)

    def answered_late(self, records: int) -> None:
        self.counted["late"] += records

    def paused(self, *, is_paused: bool) -> None:
        self.pauses.append(is_paused)

    def device_probed(self, failure: str | None) -> None:
        self.probes.append(failure)

    def rows_lost(self, failure: str) -> None:
        self.lost_rows.append(failure)

    def turned(self, now: float, in_flight: int) -> None:
        self.counted["turned"] += 1

    def settled(self, taken_at: Mapping[float, int], now: float) -> None:
        self.settled_at += [instant for instant, records in taken_at.items() for _ in range(records)]

    def committed(self, result: CommitResult) -> None:
        self.commit_results.append(result)

    def transaction_ended(self, ending: Ending, records: int) -> None:
        self.endings.append((ending, records))


class Onlooker:
    """Remembers what the Kafka clients last reported, and each lost place with the offset where its log begins."""

    def __init__(self) -> None:
        self.connections = -1
        self.standings: Mapping[Partition, Standing] = {}
        self.undelivered: Mapping[str, int] = {}
        self.lost: list[tuple[Partition, int, int]] = []
        self.stalls: Mapping[Partition, Stall] = {}
        self.counted: list[dict[str, int]] = []
        self.throttled_for: dict[str, float] = {}

    def throttled(self, client: str, seconds: float) -> None:
        self.throttled_for[client] = self.throttled_for.get(client, 0.0) + seconds

    def consumer_seen(self, connections: int, standings: Mapping[Partition, Standing]) -> None:
        self.connections, self.standings = connections, standings

    def stalled(self, stalls: Mapping[Partition, Stall]) -> None:
        self.stalls = stalls

    def offset_lost(self, partition: Partition, lost: int, first: int) -> None:
        self.lost.append((partition, lost, first))

    def topics_absent(self, topics: Sequence[str]) -> None: ...

    def topics_counted(self, partitions: Mapping[str, int]) -> None:
        self.counted.append(dict(partitions))

    def producer_seen(self, connections: int, undelivered: Mapping[str, int]) -> None:
        self.connections, self.undelivered = connections, undelivered


class FakeSchemas:
    """A registry. `takes` says how many seconds an answer about a schema takes; None: the registry is away.

    It knows the schemas below `UNKNOWN`.
    """

    UNKNOWN = 1000

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.takes: float | None = 0.0
        self.asked: list[SchemaName] = []
        self._here: dict[SchemaName, RegisteredSchema | UnknownSchema] = {}
        self.trouble: str | None = None
        self.away_since: float | None = None

    def get(self, name: SchemaName) -> RegisteredSchema | UnknownSchema | None:
        if name not in self._here and name not in self.asked:
            self.asked.append(name)
            if self.takes is not None:
                self._clock.at(self._clock.now + self.takes, lambda: self.come(name))
        return self._here.get(name)

    def come(self, *names: SchemaName) -> None:
        """Let the registry answer about these schemas."""
        for name in names:
            self._clock.stirred += 1
            is_known = isinstance(name, int) and name < self.UNKNOWN
            unknown = UnknownSchema(f"schema id {name} is not in the registry")
            self._here[name] = RegisteredSchema(int(name), None, "AVRO", "{}") if is_known else unknown


class RowCodec:
    """Values are rows of one 32-bit float, answers the output's rows. With `dead_letters`, an error is sent twice.

    `b"skip"` gets an outcome without a message; a result of `TOO_LARGE` is refused when it is written. A header
    `version` asks for another version of the model, a header `schema` names a schema, without which nothing is read.
    """

    TOO_LARGE = 2e9

    def __init__(
        self,
        *,
        dead_letters: bool = True,
        joins: bool = False,
        keeps_order: bool = False,
        rejections: Rejections | None = None,
        tell: Callable[[Rejection], object] = lambda _: None,
        schemas: FakeSchemas | None = None,
    ) -> None:
        """With `joins`, records that are alike come as one `Chunk`, or only neighbours; else each comes alone."""
        self._dead_letters = dead_letters
        self._joins = joins
        self._keeps_order = keeps_order
        self._rejections = rejections or Rejections()
        self._tell = tell
        self._schemas = schemas

    def read(self, records: Sequence[Record]) -> Reading:
        waiting = next((Waiting(at, name) for at, record in enumerate(records) if (name := self._lacks(record))), None)
        if waiting is not None:
            records = records[: waiting.at]
        rejections = [(at, rejection) for at, record in enumerate(records) if (rejection := self._refusal(record))]
        wrong = {at for at, _ in rejections}
        alike: dict[object, list[int]] = {}
        right = [at for at in range(len(records)) if at not in wrong]
        for number, (kind, group) in enumerate(groupby(right, lambda at: _alike(records[at]) if self._joins else at)):
            alike.setdefault((kind, number if self._keeps_order else 0), []).extend(group)
        return Reading(
            [_chunk([records[at] for at in its_own], its_own) for its_own in alike.values()], rejections, waiting
        )

    def _lacks(self, record: Record) -> SchemaName | None:
        name = _schema(record)
        return name if name and self._schemas is not None and self._schemas.get(name) is None else None

    def _refusal(self, record: Record) -> Rejection | None:
        value = record.value or b""
        if (name := _schema(record)) and self._schemas is not None:
            verdict = self._schemas.get(name)
            if isinstance(verdict, UnknownSchema):
                return Rejection(record, Code.INVALID_ARGUMENT, verdict.why, RAW)
        if value == b"skip" or not value or len(value) % 4:
            is_silent = value == b"skip"
            return Rejection(record, Code.INVALID_ARGUMENT, "expected rows of 4 bytes", RAW, is_silent=is_silent)
        return None

    def write(self, prediction: Prediction) -> Sequence[Answer]:
        chunk, (output, *_), start, _ = prediction
        answers: list[Answer] = []
        for record, rows in zip(chunk.records, chunk.rows, strict=True):
            own = np.ascontiguousarray(output[start : start + rows], dtype="<f4")
            start += rows
            if (own == self.TOO_LARGE).any():
                rejection = Rejection(record, Code.RESOURCE_EXHAUSTED, "too large", RAW)
                answers.append(rejection)
                self._tell(rejection)
            else:
                answers.append(_message("responses", record, own.tobytes(), "ok"))
        return answers

    def messages(self, answers: Sequence[Answer]) -> Sequence[Fields]:
        messages: list[Fields] = []
        for answer in answers:
            if not isinstance(answer, Rejection):
                self._rejections.predicted()
                messages.append(answer)
                continue
            self._rejections.rejected(answer)
            if not answer.is_silent:
                messages.append(_message("responses", answer.record, answer.message.encode(), "error"))
                letter = _message("dead-letters", answer.record, answer.record.value, "error")
                messages += [letter] if self._dead_letters else []
        return messages


RAW = ReplyForm("raw")


def _schema(record: Record) -> int:
    """The schema that the record names; 0 for none."""
    return int(dict(record.headers).get("schema") or 0)


def _alike(record: Record) -> object:
    said = dict(record.headers)
    return said.get("state"), said.get("version")


def _chunk(records: Sequence[Record], at: Sequence[int]) -> Chunk:
    said = dict(records[0].headers)
    state, version = said.get("state"), said.get("version")
    values = [record.value or b"" for record in records]
    asked = [dict(record.headers).get("timeout-ms") for record in records]
    return Chunk(
        MODEL if version is None else ModelKey(MODEL.name, version.decode()),
        RAW,
        records,
        [len(value) // 4 for value in values],
        [((1,),)] * len(records),
        [values],
        [len(value) for value in values],
        at,
        timeouts=[None if ms is None else Timeout(int(ms) / 1000) for ms in asked] if any(asked) else None,
        state=None if state is None else StateUse(state.decode()),
    )


def _message(topic: str, record: Record, value: bytes | None, status: str) -> Message:
    headers: list[tuple[str, bytes | None]] = [("source", record.source.encode()), ("status", status.encode())]
    return Message(topic, record.key, value, headers, record.partition.number)


class FakeStore:
    """Slots and rows in dictionaries. As a keeper it outlives its process: `reopened` is the next process's store."""

    def __init__(self) -> None:
        self.kept: dict[Partition, tuple[Extent, dict[bytes, int]]] = {}
        self.is_kept = False
        self.slots: dict[Partition, dict[bytes, int]] = {}
        self.arrays: dict[str, Array] = {}
        self.gets: list[Sequence[bytes]] = []

    def grow(self, name: str, array: Array, rows: int) -> Array:
        """Return a larger array that nothing else refers to."""
        before = self.arrays.get(name, array)
        self.arrays[name] = np.zeros((max(rows, len(before)), *array.shape[1:]), array.dtype)
        self.arrays[name][: len(before)] = before
        return self.arrays[name]

    def keys_of(self, partition: Partition) -> int:
        return len(self.slots.get(partition, {}))

    def get(self, partition: Partition, keys: Sequence[bytes]) -> Sequence[int]:
        self.gets.append(keys)
        return [self.slots.get(partition, {}).get(key, 0) for key in keys]

    def put(self, partition: Partition, keys: Sequence[bytes], slots: Sequence[int]) -> None:
        self.slots.setdefault(partition, {}).update(zip(keys, slots, strict=True))

    def delete(self, partition: Partition, key: bytes) -> None:
        self.slots.get(partition, {}).pop(key, None)

    def forget(self, partition: Partition) -> None:
        self.slots.pop(partition, None)

    def take(self, partition: Partition) -> Extent | None:
        extent, slots = self.kept.pop(partition, (None, None))
        if slots is not None:
            self.slots[partition] = slots
        return extent

    def keep(self, extents: Mapping[Partition, Extent], go_on: Callable[[], bool]) -> bool:
        self.is_kept = go_on()
        self.kept |= {partition: (extent, self.slots.get(partition, {})) for partition, extent in extents.items()}
        return self.is_kept

    def reopened(self) -> FakeStore:
        """The store that the next process finds: with the data of a clean end, or empty."""
        store = FakeStore()
        if self.is_kept:
            store.kept, store.arrays = dict(self.kept), {name: array.copy() for name, array in self.arrays.items()}
        return store

    def some(self, partition: Partition, most: int) -> Sequence[tuple[bytes, int]]:
        """Always the first ones: slots that are never forgotten stand in the way of the others."""
        return list(self.slots.get(partition, {}).items())[:most]


class FakeRestorer:
    """Reads the changelog of the `Broker`, one portion a call. An offset in it is the number of records before."""

    def __init__(
        self, broker: Broker, layout: StateLayout, *, is_exact: bool, date: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._broker = broker
        self._layout = layout
        self._is_exact = is_exact
        self._date = date
        self._portions: list[RestoredRows] = []
        self.is_slow = self.is_deaf = False
        self.left = 0
        self.retention = 86_400.0
        self.begun: list[tuple[Partition, Extent | None]] = []

    def begin(self, partition: Partition, attempt: int, extent: Extent | None) -> None:
        self.begun.append((partition, extent))
        changelog = self._broker.changelog(partition)
        why = None if extent is None else why_not(extent, 0, len(changelog), self._date(), self.retention)
        if why is not None:
            self._portions.append(RestoredRows(partition, attempt, (), None, anew=why))
            extent = None
        committed, is_tail = self._broker.committed.get(partition, 0), extent is not None
        restoration = Restoration(partition, attempt, self._layout, committed, is_exact=self._is_exact, is_tail=is_tail)
        start = 0 if extent is None else extent.next_offset
        for message in changelog[start:]:
            if message is None:
                continue
            if message.value is not None:
                self._portions.append(restoration.states([message.key or b""], [message.value]))
            else:
                self._portions.append(restoration.forgotten([message.key or b""], [tombstone_of(message.headers)]))
            if restoration.must_begin_anew:
                self._portions.append(RestoredRows(partition, attempt, (), None, anew="doubtful"))
                self.begin(partition, attempt, None)
                return
        self._portions.append(restoration.last(Extent(len(changelog), self._date())))

    def forget(self, partitions: Sequence[Partition]) -> None:
        """Does nothing: portions that were found for these partitions may still come."""

    def found(self) -> RestoredRows | None:
        return self._portions.pop(0) if self._portions and not self.is_slow else None

    def ends(self, partitions: Collection[Partition], timeout: float) -> Mapping[Partition, Extent]:
        if self.is_deaf or timeout <= 0:
            return {}
        return {p: Extent(len(self._broker.changelog(p)), self._date()) for p in partitions}


class FakeOutsideStore:
    """An outside store like `worker/stores/link.py`. A round trip takes `seconds`; none succeeds while it is away."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.values: dict[bytes, bytes] = {}
        self.seconds = 0.002
        self.trouble: str | None = None
        self.reads: list[Sequence[bytes]] = []
        self.writes: list[Sequence[bytes]] = []
        self._waiting: list[tuple[Sequence[Change], Stretch] | Asked] = []
        self._came: list[tuple[Asked, Sequence[bytes | None]]] = []
        self._written: list[Stretch] = []
        self.is_lost = False  # the process that sends has died: nothing arrives any more

    def ask(self, asked: Sequence[Asked]) -> None:
        self._later(asked)

    def write(self, changes: Sequence[Change], stretch: Stretch) -> None:
        self._later([(changes, stretch)])

    def read(self) -> Sequence[tuple[Asked, Sequence[bytes | None]]]:
        came, self._came = self._came, []
        return came

    def written(self) -> Sequence[Stretch]:
        written, self._written = self._written, []
        return written

    def away(self) -> None:
        self.trouble = "it is away"

    def back(self) -> None:
        self.trouble = None
        self._later([])

    def put(self, key: bytes, value: bytes) -> None:
        """Store the value by the rules of the server's script."""
        if is_later(self.values.get(key), value):
            self.values[key] = value

    def _later(self, work: Sequence[tuple[Sequence[Change], Stretch] | Asked]) -> None:
        self._clock.stirred += 1
        self._waiting += work
        self._clock.at(self._clock.now + self.seconds, self._carry_out)

    def _carry_out(self) -> None:
        if self.trouble is not None or self.is_lost:
            return
        waiting, self._waiting = self._waiting, []
        for item in waiting:
            if isinstance(item, Asked):
                self.reads.append(item.keys)
                self._came.append((item, [self.values.get(key) for key in item.keys]))
                continue
            changes, stretch = item
            self.writes.append([change.key for change in changes])
            for change in changes:
                self.put(change.key, change.value)
            self._written.append(stretch)


def is_later(old: bytes | None, new: bytes) -> bool:
    """True if the server's script writes the new value: it compares offsets, or times for another partition."""
    if old is None or len(old) < 32 or (old[8], old[12:16]) != (new[8], new[12:16]):
        return True
    at = slice(16, 24) if old[:8] == new[:8] else slice(24, 32)
    before, after = (int.from_bytes(value[at], "little", signed=True) for value in (old, new))
    return before < after or (at.start == 24 and before == after)
