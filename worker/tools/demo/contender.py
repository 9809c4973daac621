"""One of the workers that the demo compares: a replica with a mock broker of its own, and the loads it is given.

The load is that of `bench`, one generator for all contenders. Owns the worker process and the broker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from worker.core.records import ClosedBy
from worker.tools.bench.generator import Generator, mock_site
from worker.tools.bench.loads import Backlog, Steady, latency_ms
from worker.tools.bench.replica import Replica
from worker.tools.closing import Closing
from worker.tools.demo.digits import MODEL, Images
from worker.tools.kafka.embedded import CLIENT_CONFIG

# What both workers share.
_SETTINGS = {
    "MODEL__PATH": str(MODEL),
    "BATCHING__LINGER_MS": "5",
    "KAFKA__CONFIG": json.dumps(CLIENT_CONFIG),
}
_LIMIT_S = 120.0  # for the rest of a load, once it is sent: only what hangs takes longer


class LoadTally(NamedTuple):
    """What became of a load. `latency_ms` counts from the instant a request was due, by the quantile's name."""

    requests: int
    answers: int
    repeats: int
    errors: int
    right: int
    rate: float
    latency_ms: Mapping[str, float]


class Closed(NamedTuple):
    """How many batches closed, by reason, and how many rows they held."""

    batches: Mapping[str, float]
    rows: float

    @property
    def mean_rows(self) -> float:
        return self.rows / max(1.0, sum(self.batches.values()))

    def since(self, before: Closed) -> Closed:
        return Closed({name: n - before.batches[name] for name, n in self.batches.items()}, self.rows - before.rows)


class DemoWorker(Closing):
    """Owns a worker process and its broker. All contenders share the generator, one load at a time."""

    def __init__(
        self, name: str, batch_size: int, generator: Generator, images: Images, environ: Mapping[str, str]
    ) -> None:
        self.name = name
        self.batch_size = batch_size
        self._generator = generator
        self._images = images
        self._requests = 0
        self._stack = ExitStack()
        self._site = self._stack.enter_context(mock_site({}))
        own = {
            "KAFKA__BOOTSTRAP_SERVERS": self._site.kafka.bootstrap_servers,
            "KAFKA__REQUEST_TOPICS": self._site.requests,
            "KAFKA__RESPONSE_TOPIC": self._site.answers,
            "KAFKA__GROUP_ID": self._site.group,
            "BATCHING__MAX_BATCH_SIZE": str(batch_size),
        }
        self.replica = self._stack.enter_context(Replica(_SETTINGS | own, environ))

    def face(self, pace: Backlog | Steady, watch: Callable[[], None]) -> LoadTally:
        """Give it a load, and wait for the answers. Raises `Stop`. `watch` is called all the time."""

        def look_after() -> None:
            self.replica.check()
            watch()

        self._generator.open(self._site)
        sent, heard = self._generator.run(pace, look_after, _LIMIT_S)
        answers = len(heard.numbers)
        if answers < sent.requests:
            raise self.replica.late(f"{answers:,} of {sent.requests:,} answers came")
        self._requests += sent.requests
        due = np.arange(sent.requests) / pace.rate if isinstance(pace, Steady) else np.zeros(sent.requests)
        waited = heard.instants - sent.began - due[heard.numbers]
        labels = self._images.labels
        right = sum(guess.digit == labels[guess.number % len(labels)] for guess in heard.findings)
        rate = answers / float(heard.instants.max() - sent.began)
        return LoadTally(
            sent.requests, answers, heard.repeated, sum(heard.errors.values()), right, rate, latency_ms(waited)
        )

    def closed(self) -> Closed:
        """Its batches since the start, once it has counted all its requests as settled. Raises `Stop`."""
        self.replica.wait_until_settled(self._requests)
        counts = self.replica.counts("batches_total")
        reasons = {reason.value: counts.get(f'closed_by="{reason.value}"', 0.0) for reason in ClosedBy}
        return Closed(reasons, self.replica.total("batch_rows_total"))

    def close(self) -> None:
        self._stack.close()
