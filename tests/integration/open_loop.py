"""Requests at instants that are fixed beforehand, and how long each takes from then until its answer is read.

An open loop: what comes back holds nothing up, and a request that leaves late has waited all the same.
"""

from __future__ import annotations

import itertools
import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from bench.pace import Floats, Load
from worker.codecs.examples import EncodedRequest
from worker.settings import Connection
from worker.tools.bench.replica import Replica
from worker.tools.kafka.embedded import CLIENT_CONFIG, EmbeddedBroker

HEADERS: list[tuple[str, str | bytes | None]] = [("content-type", b"application/octet-stream")]

_numbers = itertools.count()


class Served:
    """A worker with topics of its own on an embedded broker, and a load of one and the same row."""

    def __init__(self, broker: EmbeddedBroker, model: Path, row: bytes, settings: dict[str, str]) -> None:
        name = f"open-loop-{next(_numbers)}"
        requests, answers = f"{name}-requests", f"{name}-answers"
        for topic in (requests, answers):
            broker.create_topic(topic)
        own = {
            "KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "KAFKA__REQUEST_TOPICS": requests,
            "KAFKA__RESPONSE_TOPIC": answers,
            "KAFKA__GROUP_ID": name,
            "KAFKA__CONFIG": json.dumps(CLIENT_CONFIG),
            "MODEL__PATH": str(model),
            "MODEL__DEVICE": "cpu",
        }
        kafka = Connection(bootstrap_servers=broker.bootstrap_servers, config=CLIENT_CONFIG)
        asked = EncodedRequest((("content-type", b"application/octet-stream"),), row)
        self._stack = ExitStack()
        self.worker = self._stack.enter_context(Replica(own | settings, os.environ))
        self._load = self._stack.enter_context(Load(kafka, [asked]))
        self._load.open(requests, answers)

    def latencies(self, arrivals: Floats) -> Floats:
        """Seconds of each of these requests, due at these ascending seconds from now."""
        return self._load.latencies(arrivals, self.worker.check)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
