"""What the client library costs beside what one writes by hand, one worker behind both.

    python -m tests.bench.client [ROUNDS]

Latency: one request after the other, the client's `infer` beside a loop that produces, polls its consumer and looks
for the id. Throughput: a heap of requests, `map` beside bare `produce` and a consumer that counts answers by their ids.
Each round runs both, one after the other, each with connections of its own and while the other has none; ratios are of
the medians. CPU is user and system time of this process alone, which other work on the machine changes less; `asking`
is the thread that asks, `reading` the client's own, and what is left is Kafka's client.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from inference_client import InferenceClient, Signature
from tests.kafka.broker import any_broker
from tests.kafka.cluster import Cluster, fresh
from tests.kafka.replica import Replica
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
PARTITIONS = 4


class Cpu(NamedTuple):
    """User and system seconds: of this process, of the thread that asks, and of the client's that reads."""

    whole: float
    asking: float
    reading: float

    @classmethod
    def now(cls) -> Self:
        """So far."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        readers = [thread.ident for thread in threading.enumerate() if thread.name == "inference-client"]
        reading = sum(time.clock_gettime(time.pthread_getcpuclockid(reader)) for reader in readers if reader)
        return cls(used.ru_utime + used.ru_stime, time.thread_time(), reading)

    def since(self, began: Self) -> Self:
        """What was used since then."""
        return type(self)(*(now - then for now, then in zip(self, began, strict=True)))


class Figure(NamedTuple):
    """One run: wall seconds of each request or of all, and CPU seconds."""

    seconds: list[float]
    cpu: Cpu

    @property
    def p50(self) -> float:
        return float(np.percentile(self.seconds, 50)) * 1000

    @property
    def p99(self) -> float:
        return float(np.percentile(self.seconds, 99)) * 1000


class Round(NamedTuple):
    """Both, in both."""

    hand_alone: Figure
    hand_heap: Figure
    client_alone: Figure
    client_heap: Figure


WHO = ("hand", "client")


def main() -> None:
    """Print both tables."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    broker = any_broker()
    kafka = Cluster(broker.bootstrap_servers)
    kafka.wait_until_coordinating()
    try:
        with tempfile.TemporaryDirectory() as folder, serving(kafka, Path(folder)) as place:
            runs = [one_round(place) for _ in range(rounds)]
            print(json.dumps(report(runs), indent=2))  # noqa: T201
    finally:
        broker.remove()


def one_round(place: Place) -> Round:
    """By hand, then by the client."""
    with ByHand(place) as hand:
        hand.alone(WARM), hand.heap(WARM)
        by_hand = hand.alone(ALONE), hand.heap(HEAP)
    with make(place) as client:
        alone(client, WARM), heap(client, WARM)
        return Round(*by_hand, alone(client, ALONE), heap(client, HEAP))


class Place(NamedTuple):
    """Where the worker is asked."""

    bootstrap: str
    requests: str
    answers: str


@contextmanager
def serving(kafka: Cluster, folder: Path) -> Iterator[Place]:
    """A worker, and nothing in this process that reads what it writes."""
    requests, answers = [kafka.create_topic(name, partitions=PARTITIONS) for name in ("requests", "answers")]
    settings = {
        "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "KAFKA__REQUEST_TOPICS": requests,
        "KAFKA__RESPONSE_TOPIC": answers,
        "KAFKA__GROUP_ID": fresh("bench"),
        "MODEL__PATH": str(save(MODEL, folder)),
        "MODEL__DEVICE": "cpu",
    }
    with Replica(settings, folder) as replica:
        replica.wait_until_ready()
        yield Place(kafka.bootstrap_servers, requests, answers)


def report(rounds: list[Round]) -> dict[str, object]:
    """Medians of the rounds, by hand and by the client, and what the client is of the other."""

    def of(kind: Literal["alone", "heap"], pick: Callable[[Figure], float]) -> dict[str, float]:
        hand, client = [statistics.median(pick(getattr(one, f"{who}_{kind}")) for one in rounds) for who in WHO]
        return {"by_hand": round(hand, 3), "client": round(client, 3), "ratio": round(client / hand, 3)}

    return {
        "alone_p50_ms": of("alone", lambda figure: figure.p50),
        "alone_p99_ms": of("alone", lambda figure: figure.p99),
        "alone_cpu_us": of("alone", lambda figure: figure.cpu.whole / ALONE * 1e6),
        "heap_per_second": of("heap", lambda figure: HEAP / figure.seconds[0]),
        "heap_cpu_us": of("heap", lambda figure: figure.cpu.whole / HEAP * 1e6),
        "heap_cpu_us_asking": of("heap", lambda figure: figure.cpu.asking / HEAP * 1e6),
        "heap_cpu_us_reading": statistics.median(one.client_heap.cpu.reading / HEAP * 1e6 for one in rounds),
        "rounds": len(rounds),
    }


def make(place: Place) -> InferenceClient:
    """The client, with what it is best with."""
    return InferenceClient(
        place.bootstrap,
        requests=place.requests,
        answers=place.answers,
        signature=SIGNATURE,
        in_flight=IN_FLIGHT,
    )


def alone(client: InferenceClient, count: int) -> Figure:
    """One after the other."""
    seconds = []
    began = Cpu.now()
    for at in range(count):
        start = time.perf_counter()
        client.infer(ROWS[at], key=b"%d" % at)
        seconds.append(time.perf_counter() - start)
    return Figure(seconds, Cpu.now().since(began))


def heap(client: InferenceClient, count: int) -> Figure:
    """As many as may be under way."""
    began, start = Cpu.now(), time.perf_counter()
    answered = sum(
        1 for _ in client.map((ROWS[at % len(ROWS)] for at in range(count)), key=lambda row: row.tobytes()[:4])
    )
    assert answered == count
    return Figure([time.perf_counter() - start], Cpu.now().since(began))


class ByHand:
    """A producer and a consumer in one loop: no types, no errors, no timeouts, no repeats."""

    def __init__(self, place: Place) -> None:
        server = {"bootstrap.servers": place.bootstrap}
        self._topic = place.requests
        self._producer = Producer(
            {**server, "linger.ms": 0, "enable.idempotence": True, "partitioner": "murmur2_random"}
        )
        self._consumer = Consumer({**server, "group.id": "by-hand", "enable.auto.commit": False})
        asked = [TopicPartition(place.answers, number, OFFSET_END) for number in range(PARTITIONS)]
        self._consumer.assign(self._consumer.offsets_for_times(asked, timeout=10))

    def alone(self, count: int) -> Figure:
        """Produce, poll until it is there."""
        seconds = []
        began = Cpu.now()
        for at in range(count):
            start = time.perf_counter()
            request_id = uuid.uuid4().bytes
            request_id = request_id.hex().encode()
            self._produce(ROWS[at].tobytes(), b"%d" % at, request_id)
            while True:
                message = self._consumer.poll(0.1)
                self._producer.poll(0)
                if message is not None and dict(message.headers() or ()).get("request-id") == request_id:
                    np.frombuffer(message.value() or b"", "<f4")
                    break
            seconds.append(time.perf_counter() - start)
        return Figure(seconds, Cpu.now().since(began))

    def heap(self, count: int) -> Figure:
        """The same window as the client's; answers are matched by their ids."""
        began, start = Cpu.now(), time.perf_counter()
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
        return Figure([time.perf_counter() - start], Cpu.now().since(began))

    def _produce(self, value: bytes, key: bytes, request_id: bytes) -> None:
        headers: list[tuple[str, str | bytes | None]] = [
            ("content-type", b"application/octet-stream"),
            ("request-id", request_id),
        ]
        self._producer.produce(self._topic, value, key, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


if __name__ == "__main__":
    main()
