"""One replica under a stream of requests, in virtual time: the worker's own batcher, and what each step costs.

    arrivals ──take──▶ Batcher ──stack──▶ lane ──split, answer──▶ latencies

It goes round as `Worker.turn()` does. The loop is one thread and the lane another: while the lane runs a batch the loop
takes, answers, and stacks a full group ahead; one that is due waits for an idle lane and keeps filling. Every step of
the loop takes its time, so a loop that is the bottleneck shows as one. No broker, no failures and no back-pressure
but the loop's own: it takes nothing while enough full groups wait. The same arguments give the same figures.

What `auto` and fixed lingers are worth is measured with it (`tests/bench/lingers.py`), and the short forecast of
`profile` is held against it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.core.batching.batcher import Batcher, BatchPolicy, Group
from worker.core.batching.linger import Linger
from worker.core.records import BatchKind, ModelKey, Partition, Prediction, Record, Reply, Request
from worker.tools.profile.engine.costs import Costs

Floats = NDArray[np.float64]

_PARTITION = Partition("simulated", 0)
_REPLY = Reply("application/octet-stream")
_MODEL = ModelKey("", "")
SHAPES = ((1,),)  # of every request
_KIND = BatchKind(_MODEL, SHAPES)


@dataclass(frozen=True, slots=True)
class Conduct:
    """How the loop uses its lane: the settings of the worker by these names, and `chunk`, most requests of a poll."""

    inflight_batches: int = 2
    chunk: int = 256


class Simulated(NamedTuple):
    """What came of it. `latencies`: seconds from arrival to answer of each request, in the order of arrival."""

    latencies: Floats
    batch_rows: Sequence[int]
    busy: float  # the lane ran so many seconds
    seconds: float  # from the first arrival to the last answer

    @property
    def lane_busy(self) -> float:
        """The share of the time in which the lane ran."""
        return self.busy / self.seconds

    @property
    def mean_rows(self) -> float:
        """Rows of a batch, on average."""
        return sum(self.batch_rows) / len(self.batch_rows)

    def latency(self, percent: float) -> float:
        """The latency that so many percent of the requests do not exceed, seconds."""
        return float(np.percentile(self.latencies, percent, method="higher"))


def simulate(  # nearly all have a default
    arrivals: Floats,
    policy: BatchPolicy,
    costs: Costs,
    *,
    request_rows: int = 1,
    row_bytes: int = 1,
    conduct: Conduct = Conduct(),
    seed: int = 0,
    auto: Linger | None = None,
) -> Simulated:
    """Serve requests of so many rows that arrive at these ascending seconds, until the last has its answer.

    `auto` waits for company in the place of the policy's linger.
    """
    size = request_rows * row_bytes
    requests = [
        Request(Record(_PARTITION, number, None, None, (), None), request_rows, (), SHAPES, _REPLY, size, _MODEL)
        for number in range(len(arrivals))
    ]
    replica = _Replica(arrivals, requests, policy, costs, conduct, np.random.default_rng(seed), auto)
    while replica.unanswered:
        replica.turn()
    seconds = float(replica.answered.max() - arrivals[0])
    return Simulated(replica.answered - arrivals, replica.batch_rows, replica.busy, seconds)


class _Running(NamedTuple):
    finishes_at: float
    seconds: float
    group: Group


class _Replica:
    """The loop, its lane and the time. What has arrived and was not taken waits in Kafka."""

    def __init__(
        self,
        arrivals: Floats,
        requests: Sequence[Request],
        policy: BatchPolicy,
        costs: Costs,
        conduct: Conduct,
        dice: np.random.Generator,
        auto: Linger | None,
    ) -> None:
        self._arriving = deque(zip(arrivals.tolist(), requests, strict=True))
        self._batcher = Batcher({_MODEL: policy}, auto=auto)
        self._auto = auto
        self._costs = costs
        self._conduct = conduct
        self._dice = dice
        self._now = 0.0
        self._in_flight: deque[_Running] = deque()
        self._lane_is_free_at = 0.0
        self.answered: Floats = np.empty(len(requests))
        self.unanswered = len(requests)
        self.batch_rows: list[int] = []
        self.busy = 0.0

    def turn(self) -> None:
        """Take in what arrived, hand out what is due, answer what is finished; or wait until there is any."""
        taken = self._take_in()
        self._hand_out()
        if not (self._take_back() or taken):
            self._now = max(self._now, self._next_event())

    @property
    def _has_backlog(self) -> bool:
        return self._batcher.backlog >= self._conduct.inflight_batches

    def _take_in(self) -> int:
        arriving, now = self._arriving, self._now
        if self._has_backlog or not arriving or arriving[0][0] > now:
            return 0
        records: list[Request] = []
        while arriving and arriving[0][0] <= now and len(records) < self._conduct.chunk:
            records.append(arriving.popleft()[1])
        self._now += self._costs.take(len(records))
        for request in records:
            self._batcher.add(request, self._now)
        return len(records)

    def _hand_out(self) -> None:
        while len(self._in_flight) < self._conduct.inflight_batches:
            group = self._batcher.ahead(self._now) if self._in_flight else self._batcher.due(self._now)
            if group is None:
                return
            self._submit(group)

    def _submit(self, group: Group) -> None:
        self._now += self._costs.stack(group.rows)
        began = max(self._now, self._lane_is_free_at) + self._costs.hand_over()
        seconds = self._costs.run(group.rows, self._dice.random())
        self._lane_is_free_at = began + seconds
        self._in_flight.append(_Running(self._lane_is_free_at, seconds, group))
        self.batch_rows.append(group.rows)
        self.busy += seconds

    def _take_back(self) -> int:
        finished: list[_Running] = []
        while self._in_flight and self._in_flight[0].finishes_at <= self._now:
            finished.append(self._in_flight.popleft())
        if finished:
            self._hand_out()  # as the loop does: the lane does not wait until answers are written
        for running in finished:
            self._answer(running.group)
            if self._auto is not None:
                self._auto.ran(_KIND, running.group.rows, running.seconds, self._now)
                self._auto.look(self._now)
        return len(finished)

    def _answer(self, group: Group) -> None:
        self._now += self._costs.answer(len(group.requests), group.rows)
        for request in group.requests:
            if request.reassembly is None or request.reassembly.collect(request, Prediction(request, ())) is not None:
                self.answered[request.record.offset] = self._now
                self.unanswered -= 1

    def _next_event(self) -> float:
        """When there is something to do again, nothing being left to do now."""
        finishes_at = self._in_flight[0].finishes_at if self._in_flight else inf
        arrives_at = self._arriving[0][0] if self._arriving and not self._has_backlog else inf
        due_at = self._batcher.next_due if not self._in_flight else None
        return min(finishes_at, arrives_at, inf if due_at is None else due_at)
