"""Requests at instants that are fixed beforehand, and how long each takes from then until its answer is read.

An open loop: what comes back holds nothing up, and a request that leaves late has waited all the same.
"""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Self

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from numpy.typing import NDArray

from tests.kafka.replica import Replica
from worker.tools.kafka.embedded import PARTITIONS, EmbeddedBroker

Floats = NDArray[np.float64]

FOR_A_MOCK = '{"fetch.wait.max.ms": "2"}'  # a mock does not wake a waiting fetch when data comes
HEADERS: list[tuple[str, str | bytes | None]] = [("content-type", b"application/octet-stream")]
GIVE_UP = 30.0  # seconds after the last request

_numbers = itertools.count()


class Served:
    """A worker with topics of its own on an embedded broker, a publisher, and a reader of its answers."""

    def __init__(self, broker: EmbeddedBroker, model: Path, folder: Path, settings: dict[str, str]) -> None:
        name = f"open-loop-{next(_numbers)}"
        self._requests, self._answers = f"{name}-requests", f"{name}-answers"
        for topic in (self._requests, self._answers):
            broker.create_topic(topic)
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        self._producer = Producer({**servers, "linger.ms": 0})
        self._reader = Consumer({**servers, "group.id": name, "fetch.wait.max.ms": 2, "enable.auto.commit": False})
        self._reader.assign([TopicPartition(self._answers, number, 0) for number in range(PARTITIONS)])
        own = {
            "KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "KAFKA__REQUEST_TOPICS": self._requests,
            "KAFKA__RESPONSE_TOPIC": self._answers,
            "KAFKA__GROUP_ID": name,
            "KAFKA__CONFIG": FOR_A_MOCK,
            "MODEL__PATH": str(model),
            "MODEL__DEVICE": "cpu",
        }
        self.worker = Replica(own | settings, folder, name)

    def latencies(self, arrivals: Floats, row: bytes) -> Floats:
        """Seconds of each of these requests, due at these ascending seconds from now."""
        due = time.monotonic() + 0.1 + arrivals
        answered = np.full(len(arrivals), np.nan)
        publishing = threading.Thread(target=self._publish, args=(due, row), daemon=True)
        publishing.start()
        while np.isnan(answered).any():
            assert self.worker.is_running, self.worker.log
            assert time.monotonic() < due[-1] + GIVE_UP, f"{np.isnan(answered).sum()} answers miss:\n{self.worker.log}"
            for message in [self._reader.poll(0.05), *self._reader.consume(1000, 0)]:
                if message is not None and message.error() is None:
                    key = message.key()
                    assert key is not None
                    assert dict(message.headers() or ())["status"] == b"ok"
                    answered[int(key)] = time.monotonic()
        publishing.join()
        return answered - due

    def _publish(self, due: Floats, row: bytes) -> None:
        for number, instant in enumerate(due.tolist()):
            if (wait := instant - time.monotonic()) > 0:
                self._producer.poll(0)
                time.sleep(wait)
            self._producer.produce(self._requests, row, b"%d" % number, headers=HEADERS)
        self._producer.flush(GIVE_UP)

    def close(self) -> None:
        """End the worker at once, and the clients."""
        self.worker.close()
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
