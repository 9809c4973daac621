"""One run: fresh topics of Crayfish's kind, replicas of the worker as it is by default, a load, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.bench.crayfish.events import Network, events
from tests.bench.crayfish.rules import LARGEST, PARTITIONS, STAMPED, Floats, Judged, Trips, judged
from tests.bench.measuring.ground import GIVE_UP, LOOK_EVERY, Job, there
from tests.bench.measuring.pace import Load, connection, steady, verdict
from tests.bench.measuring.running import WORKER, Running, running
from tests.kafka.cluster import Cluster, fresh

LOW, LOW_COUNT = 5.0, 140  # events a second, and how many: a hundred and more are left for the p99
PARTS = (0.5, 0.8)  # of what came through in the closed loop


@dataclass(frozen=True, slots=True)
class Side:
    """What one run is of: a network, the form and the images of an event, replicas, events that share an inference."""

    network: Network
    form: str
    replicas: int = 1
    batch: int = 1
    images: int = 1
    device: str = "cpu"

    @property
    def name(self) -> str:
        """In the tables."""
        return f"{self.network.name}, {self.replicas} replica{'s' * (self.replicas > 1)}, {self.how}"

    @property
    def how(self) -> str:
        """What its events are, and how many share an inference."""
        images = f" of {self.images} images" if self.images > 1 else ""
        return f"{self.form}{images}, {f'{self.batch} together' if self.batch > 1 else 'one by one'}"


class Throughput(NamedTuple):
    """Answers a second in a closed loop, and CPU time for each (µs); events a second that an open one asked, and the
    throughput of that by Crayfish's rule.
    """

    closed: float
    cpu: float
    asked: float
    judged: float


class Served:
    """Replicas of one side that answer, and the load that asks them."""

    def __init__(self, side: Side, load: Load, replicas: list[Running], responses: str) -> None:
        self._side = side
        self._load = load
        self._replicas = replicas
        self._responses = responses

    def throughput(self, seconds: float, count: int) -> Throughput:
        """First a closed loop, then so many events at Crayfish's rate."""
        answers, cpu = self._look()
        closed = self._load.most(seconds, self._side.network.outstanding)
        now_answers, now_cpu = self._look()
        trips = self.trips(steady(self._side.network.input_rate, count / self._side.network.input_rate))
        asked = (count - 1) / float(trips.sent.max() - trips.sent.min())
        return Throughput(closed, (now_cpu - cpu) / (now_answers - answers) * 1e6, asked, judged(trips).rate)

    def _look(self) -> tuple[int, float]:
        """Answers so far, and CPU seconds."""
        count = there(self._replicas[0].job.cluster, self._responses)
        return count, sum(replica.usage.cpu_seconds for replica in self._replicas)

    def delays(self, rate: float, seconds: float) -> Judged:
        """At this rate, for so many seconds, and at least for as many events as the p99 needs."""
        return judged(self.trips(steady(rate, max(seconds, LOW_COUNT / rate))))

    def trips(self, dues: Floats) -> Trips:
        """Of events that are due at these seconds from now."""
        epoch = time.time() - time.monotonic()
        sent, heard = self._load.run(dues, self._check)
        assert not heard.errors, heard.error
        began, order = sent.began + epoch, heard.numbers
        appended = [each.appended_at for each in heard.findings]
        return Trips(began + dues[order], began + sent.instants[order], np.array(appended))

    def _check(self) -> None:
        for replica in self._replicas:
            assert (why := replica.why_dead()) is None, why


@contextmanager
def serving(cluster: Cluster, model: Path, side: Side) -> Iterator[Served]:
    """Replicas that share the partitions and have answered their first events, with topics of their own."""
    limits = {"max.message.bytes": str(LARGEST)}
    requests = cluster.create_topic("crayfish-in", partitions=PARTITIONS, config=limits)
    responses = cluster.create_topic("crayfish-out", partitions=PARTITIONS, config={**limits, **STAMPED})
    settings = {
        "KAFKA__GROUP_ID": fresh("crayfish"),
        "KAFKA__MAX_REQUEST_BYTES": str(LARGEST),
        "MODEL__DEVICE": side.device,
    }
    job = Job(cluster, [requests], model, side.batch, settings)
    offered = events(side.network, side.form, side.images)
    with ExitStack() as stack:
        load = stack.enter_context(Load(connection(cluster.bootstrap_servers), offered, verdict))
        replicas = [stack.enter_context(running(WORKER, job, responses)) for _ in range(side.replicas)]
        _wait_until_shared(replicas)
        load.open(requests, responses)
        load.wait_until_answering()
        yield Served(side, load, replicas, responses)
    for topic in (requests, responses):
        cluster.delete_topic(topic)


def _wait_until_shared(replicas: list[Running]) -> None:
    """Until every partition has a replica, and every replica a part of them."""
    deadline = time.monotonic() + GIVE_UP
    while sum(held := [_held(each) for each in replicas]) != PARTITIONS or 0 in held:
        assert time.monotonic() < deadline, f"the replicas hold {held} of {PARTITIONS} partitions"
        time.sleep(LOOK_EVERY)


def _held(running: Running) -> int:
    """Partitions of which a replica knows the lag."""
    assert running.replica is not None
    running.replica.wait_until_ready()
    return len(running.replica.counts("consumer_lag"))
