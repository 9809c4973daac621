"""Measures the cost of the client library next to a client written by hand. One worker answers both.

    python -m bench.client [ROUNDS]

Latency: one request after the other; the client's `infer` next to a loop that produces, polls its consumer and looks
for the id. Throughput: a heap of requests; `map` next to bare `produce` and a consumer that counts answers by id. Both
take turns, each with its own connections. CPU is the user and system time of this process alone, which other work on
the machine changes less.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from rich.console import Console

from bench.ground import PARTITIONS, Job, response_topic
from bench.running import running
from bench.tables import Section, show
from bench.turns import take_turns
from inference_client import InferenceClient, Signature
from tests.kafka.broker import any_broker
from tests.kafka.cluster import Cluster
from tests.kafka.scene import MODEL, ROWS, WIDTH
from tests.models import save

SIGNATURE = Signature.of(
    {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, WIDTH]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
    }
)
ALONE, HEAP, WARM = 1000, 50_000, 500
IN_FLIGHT = 2000
MS, US = 1e3, 1e6
HOW = f"{ALONE:,} requests one after the other; {HEAP:,} with {IN_FLIGHT:,} under way. Medians of the rounds."
COLUMNS = ("", "p50 ms", "p99 ms", "CPU us", "heap/s", "CPU us")


class Site(NamedTuple):
    """The broker, and the topics of requests and answers."""

    bootstrap: str
    requests: str
    answers: str


class Figure(NamedTuple):
    """The figures of one run: milliseconds and CPU µs of a request alone; requests a second and CPU µs of a heap."""

    p50: float
    p99: float
    cpu: float
    rate: float
    heap_cpu: float


def main() -> None:
    """Measure, and print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    broker = any_broker()
    kafka = Cluster(broker.bootstrap_servers)
    kafka.wait_until_coordinating()
    try:
        with tempfile.TemporaryDirectory() as folder, serving(kafka, Path(folder)) as site:
            found = take_turns(list(CONTENDERS), rounds, lambda name: measured(CONTENDERS[name](site)), lambda _: None)
    finally:
        broker.remove()
    medians = {name: Figure(*map(statistics.median, zip(*runs, strict=True))) for name, runs in found.items()}
    lines = [[name, *(f"{figure:,.2f}" for figure in figures)] for name, figures in medians.items()]
    pairs = zip(medians["client"], medians["by hand"], strict=True)
    lines.append(["client / by hand", *(f"{ours / theirs:.2f}" for ours, theirs in pairs)])
    show(Section("The client library", HOW, COLUMNS, lines), Console())


@contextmanager
def serving(kafka: Cluster, folder: Path) -> Iterator[Site]:
    """Starts a worker and waits until it is ready. Nothing in this process reads its answers."""
    requests = kafka.create_topic("requests", partitions=PARTITIONS)
    job = Job(kafka, [requests], save(MODEL, folder), 64)
    with response_topic(kafka) as answers, running("worker", job, answers) as worker:
        assert worker.replica is not None
        worker.replica.wait_until_ready()
        yield Site(kafka.bootstrap_servers, requests, answers)


def measured(asker: ByHand | ByClient) -> Figure:
    """Measures both loads, after a warm-up."""

    def alone(count: int) -> list[float]:
        instants = [time.perf_counter()]
        for number in range(count):
            asker.one(number)
            instants.append(time.perf_counter())
        return np.diff(instants).tolist()

    with closing(asker):
        alone(WARM)
        asker.heap(WARM)
        cpu = time.process_time()
        p50, p99 = np.percentile(alone(ALONE), (50, 99)) * MS
        cpu, began, heap_cpu = time.process_time() - cpu, time.perf_counter(), time.process_time()
        asker.heap(HEAP)
        seconds, heap_cpu = time.perf_counter() - began, time.process_time() - heap_cpu
    return Figure(float(p50), float(p99), cpu / ALONE * US, HEAP / seconds, heap_cpu / HEAP * US)


class ByClient:
    """The client library as a contender."""

    def __init__(self, site: Site) -> None:
        self._client = InferenceClient(
            site.bootstrap, requests=site.requests, answers=site.answers, signature=SIGNATURE, in_flight=IN_FLIGHT
        )

    def one(self, number: int) -> None:
        self._client.infer(ROWS[number], key=b"%d" % number)

    def heap(self, count: int) -> None:
        rows = (ROWS[at % len(ROWS)] for at in range(count))
        assert sum(1 for _ in self._client.map(rows, key=lambda row: row.tobytes()[:4])) == count

    def close(self) -> None:
        self._client.close()


class ByHand:
    """The client written by hand: a producer and a consumer in one loop, without types, errors, timeouts or repeats."""

    def __init__(self, site: Site) -> None:
        server = {"bootstrap.servers": site.bootstrap}
        self._topic = site.requests
        self._producer = Producer(
            {**server, "linger.ms": 0, "enable.idempotence": True, "partitioner": "murmur2_random"}
        )
        self._consumer = Consumer({**server, "group.id": "by-hand", "enable.auto.commit": False})
        asked = [TopicPartition(site.answers, number, OFFSET_END) for number in range(PARTITIONS)]
        self._consumer.assign(self._consumer.offsets_for_times(asked, timeout=10))

    def one(self, number: int) -> None:
        """Produce a request, and poll until its answer comes."""
        request_id = uuid.uuid4().hex.encode()
        self._produce(ROWS[number].tobytes(), b"%d" % number, request_id)
        while True:
            message = self._consumer.poll(0.1)
            self._producer.poll(0)
            if message is not None and dict(message.headers() or ()).get("request-id") == request_id:
                np.frombuffer(message.value() or b"", "<f4")
                return

    def heap(self, count: int) -> None:
        """Send requests in a window as large as the client's, and match answers by their ids."""
        run = uuid.uuid4().hex.encode()
        waiting: set[bytes] = set()
        sent = 0
        while sent < count or waiting:
            while sent < count and len(waiting) < IN_FLIGHT:
                request_id = b"%b-%d" % (run, sent)
                row = ROWS[sent % len(ROWS)].tobytes()
                waiting.add(request_id)
                self._produce(row, row[:4], request_id)
                sent += 1
            self._producer.poll(0)
            first = self._consumer.poll(0.1)
            for message in [] if first is None else [first, *self._consumer.consume(1000, 0)]:
                waiting.discard(dict(message.headers() or ()).get("request-id", b""))
                np.frombuffer(message.value() or b"", "<f4")

    def _produce(self, value: bytes, key: bytes, request_id: bytes) -> None:
        headers: list[tuple[str, str | bytes | None]] = [
            ("content-type", b"application/octet-stream"),
            ("request-id", request_id),
        ]
        self._producer.produce(self._topic, value, key, headers=headers)

    def close(self) -> None:
        self._consumer.close()


CONTENDERS: dict[str, type[ByHand | ByClient]] = {"by hand": ByHand, "client": ByClient}


if __name__ == "__main__":
    main()
