"""Measurements from Kafka to Kafka: a contender works off a backlog, then serves loads at parts of its rate. The device
is watched meanwhile."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench.gpu.device import Watch
from bench.gpu.networks import KINDS, Network
from bench.gpu.results import Line, Stage
from bench.gpu.sessions import answered, loaded, milliseconds
from bench.ground import Job, fill, response_topic, there, wait_for
from bench.loops.task import Task
from bench.pace import Load, connection, steady
from bench.running import Running, process
from bench.turns import between, lane_seconds, look_on
from tests.kafka.cluster import fresh
from worker.codecs.examples import EncodedRequest
from worker.tools.bench.figures import latency_ms

MOST_ROWS, MOST_BYTES = 1_000_000, 1536 << 20  # of a backlog: a broker takes in so much within seconds
LEAST_ROWS = 2_000
MOST_PACED = 40_000.0  # requests a second that one publisher sends in time


class Flow(NamedTuple):
    """The figures of a contender that worked off a backlog."""

    rate: float
    cpu_us: float
    lane: float
    seen: Line
    why: str

    @property
    def joules_each_1000(self) -> float | None:
        """Energy of the whole device for a thousand answers."""
        watts = self.seen["watts"]
        return None if watts is None else 1000 * float(watts) / self.rate


@contextmanager
def backlog(
    stage: Stage, network: Network, expected: float, spare: float = 1.0, most_bytes: int = MOST_BYTES
) -> Iterator[tuple[str, int]]:
    """Fills a topic for a measurement and `spare` seconds at the `expected` rate. Yields it, and its request count."""
    values = network.form.values(KINDS)
    size = sum(map(len, values)) / len(values)
    wanted = int(expected * (stage.seconds + spare) * 1.2)
    rows = max(min(LEAST_ROWS, wanted), min(wanted, MOST_ROWS, int(most_bytes / size)))
    topic = fill(stage.cluster, rows, values, network.form.headers)
    try:
        yield topic, rows
    finally:
        stage.cluster.delete_topic(topic)


def alone(stage: Stage, network: Network) -> float:
    """Measures the rows a second of the worker's model at its batch, roughly: the size of a backlog depends on it."""
    model, feeds = loaded(stage.model(network), stage.device, network.batch), network.feeds(network.batch)
    return network.batch / milliseconds(lambda: answered(model, feeds), stage.seconds / 4) * 1000


def worked_off(stage: Stage, contender: Running, responses: str, rows: int) -> Flow:
    """Measures from the first answer on, for `stage.seconds`, or until all is answered."""
    cluster = stage.cluster
    wait_for(cluster, responses, 1, contender.why_dead)
    began, lane = time.monotonic(), lane_seconds(contender)
    with Watch(stage.device) as watch:
        looks = look_on(contender, lambda: there(cluster, responses), rows, stage.seconds)
    lane, ended = lane_seconds(contender) - lane, time.monotonic()
    figure = between(looks[0], looks[-1])
    return Flow(figure.rate, figure.cpu, lane / (ended - began), watch.figures, watch.why)


def delays(stage: Stage, contender: Running, network: Network, responses: str, rate: float) -> Line:
    """Measures the milliseconds from due to read under a steady load, and how late the publisher was."""
    (requests,) = contender.job.requests
    offered = [EncodedRequest(network.form.headers, value) for value in network.form.values(KINDS)]
    paced = min(rate, MOST_PACED)
    with Load(connection(stage.cluster.bootstrap_servers), offered) as load:
        load.open(requests, responses)
        load.wait_until_answering()
        dues = steady(paced, max(stage.seconds, 100 / paced))
        sent, heard = load.run(dues, contender.check)
    assert not heard.errors, heard.error
    waited = latency_ms(heard.instants - sent.began - dues[heard.numbers])
    late = latency_ms(sent.instants - dues).get("p99")
    return {"rate": paced, "p50": waited.get("p50"), "p99": waited.get("p99"), "late": late}


@contextmanager
def loop(stage: Stage, network: Network, name: str, job: Job, responses: str) -> Iterator[Running]:
    """Starts a loop of `loops.py`, and kills it at the end."""
    (requests,) = job.requests
    task = Task(stage.cluster.bootstrap_servers, requests, responses, fresh("bench"), str(job.model), job.batch)
    program = [sys.executable, "-m", "bench.gpu.loops", name, stage.device, network.name, network.precision]
    with process(name, [*program, *task.words()], job) as contender:
        yield contender


def by_loop(stage: Stage, network: Network, name: str, topic: str, rows: int) -> Flow:
    """Measures a loop that works off the backlog in `topic`."""
    job = stage.job(network, [topic])
    with response_topic(stage.cluster) as responses, loop(stage, network, name, job, responses) as contender:
        return worked_off(stage, contender, responses, rows)
