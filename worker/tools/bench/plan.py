"""The plan of a measurement: the caller's settings, checked, and requests made for the model.

Every contender has the caller's settings; topics, group and addresses are the measurement's own. Everything is checked
before anything is started.
"""

from __future__ import annotations

import json
import math
import os
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from worker.codecs.examples import EncodedRequest, Encoding, encode_request, encodings, example_feeds
from worker.core.failures import BadConfiguration
from worker.core.records import Array, Prediction
from worker.core.tensors.signature import Signature
from worker.settings import Connection, Settings, load
from worker.terminal.command_line import check_idle, open_axes, with_options
from worker.tools.bench.generator import Site, kept_by_mock
from worker.tools.bench.options import BenchOrder
from worker.tools.bench.plain_loop import LoopJob, LoopProcess, codecs_of, decoded
from worker.tools.bench.replica import Replica
from worker.tools.kafka.embedded import CLIENT_CONFIG

_DEMO = Path(__file__).parents[1] / "demo" / "digits.onnx"  # the model where none is named
_BOOTSTRAP, _MODEL = "WORKER_KAFKA__BOOTSTRAP_SERVERS", "WORKER_MODEL__PATH"
_ADDRESSES = {f"WORKER_KAFKA__{key.upper()}" for key in Connection.model_fields if key != "config"}
# Settings that a worker must have to be checked; each contender gets its own in their place.
_FILLED_IN = {key: f"inference-worker-bench-{key.lower()}" for key in ("REQUEST_TOPICS", "RESPONSE_TOPIC", "GROUP_ID")}
# Different requests, taken in turns: more than any cache holds, and not much memory.
_KINDS, _KINDS_BYTES = 256, 8 * 1024 * 1024
# A closed loop's window on a broker that would keep more.
_MOST = 10_000
_CODEC_S = 0.2  # seconds in which the codecs are timed


class Plan:
    """The checked order. Raises `BadConfiguration` for what cannot be measured."""

    def __init__(self, order: BenchOrder, environ: Mapping[str, str]) -> None:
        self.order = order
        given = with_options(
            environ, WORKER_KAFKA__BOOTSTRAP_SERVERS=order.bootstrap_servers, WORKER_MODEL__PATH=order.model
        )
        if order.embedded:
            check_idle("with --embedded", bootstrap_servers=order.bootstrap_servers)
        self.is_embedded = order.embedded or not _is_set(_BOOTSTRAP, order.config, given)
        if self.is_embedded:
            check_idle("on the embedded broker, whose topics end with it", prefix=order.prefix)
        self._environ = dict(self._complete(given))
        self.settings = self._load()
        self._inspect()
        made_up = tuple(self._made_up())
        self.requests = tuple(request for request, _ in made_up)
        lengths = [axes for _, axes in made_up]
        self.open_axes = {
            axis: f"{min(of[axis] for of in lengths)} to {max(of[axis] for of in lengths)}" for axis in lengths[0]
        }

    def _complete(self, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """The environment with what a worker must have; for a mock broker, without how another one is reached."""
        for name, value in given.items():
            if not (self.is_embedded and name.removesuffix("_FILE") in _ADDRESSES):
                yield name, value
        for key, value in _FILLED_IN.items():
            yield f"WORKER_KAFKA__{key}", value
        yield "WORKER_KAFKA__AUTO_OFFSET_RESET", "earliest"
        if self.is_embedded:
            yield _BOOTSTRAP, "127.0.0.1:1"  # until there is one
            yield "WORKER_KAFKA__SECURITY_PROTOCOL", "PLAINTEXT"
        if not _is_set(_MODEL, self.order.config, given):
            yield _MODEL, str(_DEMO)

    def _load(self) -> Settings:
        settings = load(self.order.config, self._environ)
        if self.is_embedded and settings.delivery.guarantee == "exactly_once":
            raise BadConfiguration(
                "exactly_once needs a real Kafka, and the embedded broker is a mock, which has no transactions: "
                + ("leave out --embedded" if self.order.embedded else f"set {_BOOTSTRAP}")
            )
        if settings.state.tensors:
            raise BadConfiguration(
                "WORKER_STATE__TENSORS: bench does not measure a model with state, as its requests have no keys; leave "
                "out all of WORKER_STATE__ and WORKER_KAFKA__CHANGELOG_TOPIC here (of --config: [state] and "
                "changelog_topic), and the model is measured with its state as an input"
            )
        return settings

    def _inspect(self) -> None:
        from worker.inference import example_of, inspect  # noqa: PLC0415 - ONNX Runtime takes its time

        inspected = inspect(self.settings.model)
        self.signature: Signature = inspected.signature
        self.max_rows = min(
            self.settings.batching.max_batch_size, inspected.fixed_rows or self.settings.batching.max_batch_size
        )
        example = example_of(self.settings.model, self.signature)
        self._example: Mapping[str, Array] | None = None if example is None else example.arrays
        possible = encodings(self.signature)
        # Raw rows where the model takes them; else the binary-data form, which is the next cheapest to read.
        wanted = self.order.encoding or (possible[0] if possible[0] is Encoding.ROWS else Encoding.BINARY)
        if wanted not in possible:
            raise BadConfiguration(f"--encoding {wanted}: this model can be asked as {', '.join(possible)}")
        self.encoding = Encoding(wanted)

    def _made_up(self) -> Iterator[tuple[EncodedRequest, dict[str, int]]]:
        """Requests, always the same ones, each with the lengths of the axes that the model's file leaves open."""
        rng, size = np.random.default_rng(0), 0
        for _ in range(_KINDS):
            feeds = example_feeds(self.signature, self.order.rows_per_request, rng, self._example)
            request = encode_request(self.signature, feeds, self.encoding)
            size += len(request.value)
            required = self.signature.required
            yield request, open_axes(required, [feeds[spec.name].shape[1:] for spec in required])
            if size > _KINDS_BYTES:
                return

    @property
    def request_bytes(self) -> int:
        """The longest request's."""
        return max(len(request.value) for request in self.requests)

    @property
    def kept(self) -> float:
        """The number of unanswered requests that are safe on the broker."""
        return kept_by_mock(self.request_bytes) if self.is_embedded else math.inf

    @property
    def window(self) -> tuple[int, int]:
        """Requests that fill the batches of all lanes, and as many again; and the most that may be under way."""
        batching, most = self.settings.batching, int(min(_MOST, self.kept))
        rows = batching.max_batch_size * (batching.max_inflight_batches + 2)
        return min(most, -(-rows // self.order.rows_per_request)), most

    def worker(self, site: Site) -> Replica:
        """The worker with the caller's settings, started. None of the caller's topics and names is among them."""
        settings = self.settings
        own = {
            **{
                name.removeprefix("WORKER_"): value
                for name, value in self._environ.items()
                if name.startswith("WORKER_")
            },
            "KAFKA__BOOTSTRAP_SERVERS": site.kafka.bootstrap_servers,
            "KAFKA__REQUEST_TOPICS": site.requests,
            "KAFKA__RESPONSE_TOPIC": site.answers,
            "KAFKA__GROUP_ID": site.group,
            "TELEMETRY__HTTP_ADDRESS": "127.0.0.1",
        }
        if self.is_embedded:
            own["KAFKA__CONFIG"] = json.dumps({**CLIENT_CONFIG, **settings.kafka.config})
        # An empty variable counts as not set, and the file's value would hold: what the file sets gets another one.
        if settings.kafka.dead_letter_topic is not None:
            own["KAFKA__DEAD_LETTER_TOPIC"] = site.rejected
        if settings.kafka.group_instance_id is not None:
            own["KAFKA__GROUP_INSTANCE_ID"] = site.group
        if settings.delivery.transactional_id is not None:
            own["DELIVERY__TRANSACTIONAL_ID"] = site.group
        return Replica(own, os.environ, config=self.order.config)

    def loop(self, site: Site, at_once: int) -> LoopProcess:
        """A loop of so many requests at once, started."""
        job = LoopJob(site, at_once, are_rows=self.encoding is Encoding.ROWS)
        return LoopProcess(self.settings.model, self.signature, job)

    def codec_seconds(self) -> float:
        """Reading a request and writing an answer of it, by the worker's codecs in this process: the mean seconds."""
        codecs, rows = codecs_of(self.signature), self.order.rows_per_request
        taken = [(request.value, request.headers) for request in self.requests]
        answer = tuple(
            np.full((rows, *(d or 1 for d in spec.dims)), b"" if spec.is_text else 0, spec.dtype)
            for spec in self.signature.outputs
        )
        began, done = time.perf_counter(), 0
        while (spent := time.perf_counter() - began) < _CODEC_S or not done:
            for request in decoded(codecs, taken):
                codecs.encode(Prediction(request, answer))
            done += len(taken)
        return spent / done


def _is_set(variable: str, config: Path | None, environ: Mapping[str, str]) -> bool:
    """Whether it is in the environment or in the file. Faults of the file are found when its settings are read."""
    if environ.get(variable):
        return True
    if config is None:
        return False
    section, _, key = variable.removeprefix("WORKER_").lower().partition("__")
    try:
        table = tomllib.loads(config.read_text(encoding="utf-8")).get(section, {})
    except (OSError, ValueError):
        return True
    return isinstance(table, dict) and key in table
