"""The client under fire: workers killed and replaced every two seconds, the broker restarted, two clients rolled.

    python -m tests.kafka.client_fire [SUBMITS] [at_least_once | exactly_once]

Each future must end exactly once, and each result must be what ONNX Runtime alone computes. Exactly once, the one
broker is left alone (it would lose ends of transactions, KAFKA-20734), and no repeat may be read.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import onnxruntime as ort

from inference_client import Answer, InferenceClient
from tests.kafka.broker import JvmBroker
from tests.kafka.cluster import MORTAL, Cluster, fresh
from tests.kafka.replica import Replica
from tests.kafka.scene import GUARANTEES, MODEL, ROWS, WIDTH
from tests.models import save

METADATA = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, WIDTH]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
}
REPLICAS = 3
KILL_EVERY = 2.0
LIFE = 5_000  # submits of one client before it is closed and another takes its place
ANSWERED_WITHIN = 120.0


class Ground:
    """Where it burns: the topics, and the books."""

    def __init__(self, kafka: Cluster) -> None:
        self.kafka = kafka
        self.requests = kafka.create_topic("requests", partitions=8)
        self.answers = kafka.create_topic("answers", partitions=8)
        self.books: Counter[str] = Counter()
        self._lock = threading.Lock()

    def note(self, **counts: int) -> None:
        """Add these to the books."""
        with self._lock:
            self.books.update(counts)


class Fire(Ground):
    """Counts how often each future ended, and with what."""

    def __init__(self, kafka: Cluster) -> None:
        super().__init__(kafka)
        (self._expected,) = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"]).run(None, {"x": ROWS})

    def client(self, submits: int, partition: int) -> None:
        """One client after the other, each for so many submits."""
        for life in range(submits // LIFE):
            with InferenceClient(
                self.kafka.bootstrap_servers,
                requests=self.requests,
                answers=self.answers,
                signature=METADATA,
                timeout=ANSWERED_WITHIN,
                reply_partition=partition if life % 2 else None,
            ) as client:
                self._ask(client, life * LIFE)
            self.note(clients=1, late=client.late, repeats=client.repeats)

    def _ask(self, client: InferenceClient, first: int) -> None:
        ends: Counter[bytes] = Counter()

        def ended(answer: Answer) -> None:
            ends[answer.request_id] += 1

        numbers = [at % len(ROWS) for at in range(first, first + LIFE)]
        futures = []
        for number in numbers:
            futures.append(client.submit(ROWS[number], key=b"%d" % (number % 997)))
            futures[-1].when_done(ended)
        wait(futures)
        for number, future in zip(numbers, futures, strict=True):
            error = future.exception()
            if error is not None:
                self.note(**{type(error).__name__: 1})
            else:
                is_right = np.allclose(future.result()["y"][0], self._expected[number], 1e-4, 1e-5)
                self.note(**{"right" if is_right else "wrong": 1})
        self.note(submits=len(futures), ended_once=sum(count == 1 for count in ends.values()))


def main() -> None:
    """Print the books; exit 1 where a promise was broken."""
    submits = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    guarantee = sys.argv[2] if len(sys.argv) > 2 else "at_least_once"
    with JvmBroker({}) as broker, tempfile.TemporaryDirectory() as folder:
        kafka = Cluster(broker.bootstrap_servers)
        kafka.wait_until_coordinating()
        fire = Fire(kafka)
        began = time.monotonic()
        clients = [threading.Thread(target=fire.client, args=(submits // 2, partition)) for partition in (2, 5)]
        burn(fire, clients, broker, Path(folder), guarantee)
        fire.books["seconds"] = round(time.monotonic() - began)
    print(json.dumps(fire.books, indent=2, sort_keys=True))  # noqa: T201
    books = fire.books
    is_kept = books["submits"] == books["ended_once"] and not books["wrong"]
    sys.exit(not is_kept or (guarantee == "exactly_once" and books["repeats"] > 0))


def burn(fire: Ground, clients: list[threading.Thread], broker: JvmBroker, folder: Path, guarantee: str) -> None:
    """Kill and start workers as long as the clients ask; restart the broker after every tenth.

    The last that is ready lives: on a machine where a start takes longer than three kills there would be none at all.
    """
    group = fresh("fire")
    fire.kafka.set_session(group, MORTAL)
    settings = {
        "KAFKA__BOOTSTRAP_SERVERS": fire.kafka.bootstrap_servers,
        "KAFKA__REQUEST_TOPICS": fire.requests,
        "KAFKA__RESPONSE_TOPIC": fire.answers,
        "KAFKA__GROUP_ID": group,
        "MODEL__PATH": str(save(MODEL, folder)),
        "MODEL__DEVICE": "cpu",
        **GUARANTEES[guarantee],
    }
    replicas = [Replica(settings, folder, f"replica-{number}") for number in range(REPLICAS)]
    for replica in replicas:
        replica.wait_until_ready()
    for client in clients:
        client.start()
    while asking := [client for client in clients if client.is_alive()]:
        asking[0].join(KILL_EVERY)
        if not any(replica.status("/readyz") == 200 for replica in replicas[1:]):
            continue
        replicas.pop(0).kill()
        fire.books["kills"] += 1
        replicas.append(Replica(settings, folder, f"replica-{REPLICAS + fire.books['kills']}"))
        if guarantee == "at_least_once" and fire.books["kills"] % 10 == 5:
            broker.kill()
            broker.start()
            fire.books["broker_restarts"] += 1
    for replica in replicas:
        replica.kill()


if __name__ == "__main__":
    main()
