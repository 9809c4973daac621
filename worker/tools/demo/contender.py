"""One of the workers that the demo compares: a replica with topics of its own, and the loads it is given."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple, Self

from worker.core.failures import DeadlineMissed
from worker.core.records import ClosedBy
from worker.settings import Connection
from worker.tools.bench.load.replica import Replica
from worker.tools.demo.digits import MODEL, Images
from worker.tools.demo.load import Load, Tally
from worker.tools.demo.screen import Screen
from worker.tools.kafka.embedded import CLIENT_CONFIG
from worker.tools.kafka.publisher import Publisher
from worker.tools.kafka.reader import Reader

# What both workers share.
_SETTINGS = {
    "MODEL__PATH": str(MODEL),
    "BATCHING__LINGER_MS": "5",
    "KAFKA__CONFIG": json.dumps(CLIENT_CONFIG),
}
# The worker shows its counts once per turn of its loop, and nobody counts before the last answer is acknowledged.
_COUNTS_WITHIN_S = 30.0


class Closed(NamedTuple):
    """How many batches closed, by reason, and how many rows they held."""

    batches: Mapping[str, float]
    rows: float

    @property
    def mean_rows(self) -> float:
        return self.rows / max(1.0, sum(self.batches.values()))

    def since(self, before: Closed) -> Closed:
        """What came after an earlier count."""
        return Closed({name: n - before.batches[name] for name, n in self.batches.items()}, self.rows - before.rows)


class Contender:
    """Owns a worker process, its topics and the reader of its answers."""

    def __init__(
        self, name: str, batch_size: int, bootstrap_servers: str, topics: Topics, environ: Mapping[str, str]
    ) -> None:
        self.name = name
        self.batch_size = batch_size
        self._connection = Connection(bootstrap_servers=bootstrap_servers, config=CLIENT_CONFIG)
        self._topics = topics
        self._requests = 0
        self._stack = ExitStack()
        own = {
            "KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "KAFKA__REQUEST_TOPICS": topics.requests,
            "KAFKA__RESPONSE_TOPIC": topics.answers,
            "KAFKA__GROUP_ID": name.replace(" ", "-"),
            "BATCHING__MAX_BATCH_SIZE": str(batch_size),
        }
        self.replica = self._stack.enter_context(Replica(_SETTINGS | own, environ))
        self._reader = self._stack.enter_context(Reader(self._connection, topics.answers))
        self._reader.start_at(self._reader.beginnings)

    def face(self, images: Images, requests: int, rate: float, screen: Screen, title: str) -> Tally:
        """Give it so many requests at so many per second, and wait for the answers. Raises `Stop`."""
        self._requests += requests
        load = Load(images, requests, rate)
        screen.begin(f"{self.name}: {title}", requests)
        try:
            for seen in load.run(Publisher(self._connection, self._topics.requests), self._reader):
                screen.show(seen)
                self.replica.check()
        except DeadlineMissed as missed:
            raise self.replica.late(str(missed)) from missed
        return load.tally()

    def closed(self) -> Closed:
        """Its batches since the start, once it has counted all its requests as settled."""
        deadline = time.monotonic() + _COUNTS_WITHIN_S
        while self._count("records_settled_total") < self._requests and time.monotonic() < deadline:
            time.sleep(0.02)
        counts = self.replica.counts("batches_total")
        reasons = {reason.value: counts.get(f'closed_by="{reason.value}"', 0.0) for reason in ClosedBy}
        return Closed(reasons, self._count("batch_rows_total"))

    def _count(self, metric: str) -> float:
        return sum(self.replica.counts(metric).values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


class Topics(NamedTuple):
    """Where a contender's requests and answers lie."""

    requests: str
    answers: str
