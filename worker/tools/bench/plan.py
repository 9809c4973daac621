"""What `bench` makes of the environment and its options: settings for each contender, requests for the model.

Each contender has the caller's settings and, over them, its own; topics, group and addresses are the measurement's.
Everything is checked before anything is started.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from worker.codecs.examples import EncodedRequest, Encoding, encode_request, encodings, example_feeds
from worker.core.failures import BadConfiguration
from worker.core.records import Array
from worker.core.tensors.signature import Signature
from worker.settings import Connection, Settings, load
from worker.terminal.command_line import check_idle, with_options
from worker.terminal.open_axes import open_axes
from worker.tools.bench.columns import Column, ContenderKind, Rate, columns_of, rates_of
from worker.tools.bench.options import BenchOrder
from worker.tools.bench.plain_loop import LoopJob, LoopProcess
from worker.tools.bench.report import Part
from worker.tools.demo.digits import MODEL
from worker.tools.kafka.embedded import CLIENT_CONFIG
from worker.tools.load.contender import Contender
from worker.tools.load.generator import Site
from worker.tools.load.replica import Replica

if TYPE_CHECKING:
    from worker.inference import Inspected

_BOOTSTRAP, _MODEL = "WORKER_KAFKA__BOOTSTRAP_SERVERS", "WORKER_MODEL__PATH"
_ADDRESSES = {f"WORKER_KAFKA__{key.upper()}" for key in Connection.model_fields if key != "config"}
# Settings that a worker must have to be checked; each turn puts its own in their place.
_FILLED_IN = {key: f"inference-worker-bench-{key.lower()}" for key in ("REQUEST_TOPICS", "RESPONSE_TOPIC", "GROUP_ID")}
PARTITIONS = 4  # of a topic, unless --partitions says another number; the embedded broker's always
# Different requests, taken in turns: more than any cache holds, and not much memory.
_KINDS, _KINDS_BYTES = 256, 8 * 1024 * 1024


class Span(NamedTuple):
    """The shortest and the longest that an axis is in the requests."""

    min: int
    max: int


class Plan:
    """What an order asks for, checked. Raises `BadConfiguration` for what cannot be measured."""

    def __init__(self, order: BenchOrder, environ: Mapping[str, str]) -> None:
        self.order = order
        self.columns = columns_of(order.sets or ())
        self.rates: tuple[Rate, ...] = rates_of(order.rates)
        given = with_options(
            environ, WORKER_KAFKA__BOOTSTRAP_SERVERS=order.bootstrap_servers, WORKER_MODEL__PATH=order.model
        )
        if order.embedded:
            check_idle("with --embedded", bootstrap_servers=order.bootstrap_servers)
        self.is_embedded = order.embedded or not _is_set(_BOOTSTRAP, order.config, given)
        if self.is_embedded:
            check_idle(
                f"on the embedded broker, whose topics have {PARTITIONS} partitions and end with it",
                partitions=order.partitions,
                prefix=order.prefix,
            )
        self.partitions = order.partitions or PARTITIONS
        self.prefix = order.prefix or "inference-worker-bench"
        self.is_demo_model = not _is_set(_MODEL, order.config, given)
        self._environ = dict(self._complete(given))
        self._settings = {column.name: self._load(column) for column in self.columns}
        self.settings = load(order.config, self._environ)
        if self.settings.state.tensors:
            raise BadConfiguration(
                "WORKER_STATE__TENSORS: bench does not measure a model with state, as its requests have no keys; leave "
                "out all of WORKER_STATE__ and WORKER_KAFKA__CHANGELOG_TOPIC here (of --config: [state] and "
                "changelog_topic), and the model is measured with its state as an input"
            )
        self._models = self._inspected()
        self.signature = self._same_signature()
        self.encoding = self._encoding()
        made_up = tuple(_made_up(self.signature, order.rows_per_request, self.encoding, self._example()))
        self.requests = tuple(request for request, _ in made_up)
        self.open_axes = _spans([lengths for _, lengths in made_up])

    def _complete(self, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """With what a worker must have; for a mock broker, without how another one is reached."""
        for name, value in given.items():
            if not (self.is_embedded and name.removesuffix("_FILE") in _ADDRESSES):
                yield name, value
        for key, value in _FILLED_IN.items():
            yield f"WORKER_KAFKA__{key}", value
        yield "WORKER_KAFKA__AUTO_OFFSET_RESET", "earliest"
        if self.is_embedded:
            yield _BOOTSTRAP, "127.0.0.1:1"  # until there is one
            yield "WORKER_KAFKA__SECURITY_PROTOCOL", "PLAINTEXT"
        if self.is_demo_model:
            yield _MODEL, str(MODEL)

    def _load(self, column: Column) -> Settings:
        try:
            settings = load(self.order.config, self._environ | dict(column.settings))
        except BadConfiguration as refusal:
            if not column.settings:
                raise
            raise BadConfiguration(f"--set {column.name}: {refusal}") from None
        if self.is_embedded and settings.delivery.guarantee == "exactly_once":
            raise BadConfiguration(
                "exactly_once needs a real Kafka, and the embedded broker is a mock, which has no transactions: "
                + ("leave out --embedded" if self.order.embedded else f"set {_BOOTSTRAP}")
            )
        return settings

    def _inspected(self) -> dict[Path, Inspected]:
        """Each model; first the one that all contenders have unless `--set` names another."""
        from worker.inference import inspect  # noqa: PLC0415 - ONNX Runtime takes its time; first what is cheap to find

        models = {settings.model.path: settings.model for settings in (self.settings, *self._settings.values())}
        return {path: inspect(model) for path, model in models.items()}

    def _same_signature(self) -> Signature:
        """What all the models take and give: models may differ, but they get the same requests."""
        signatures = {path: inspected.signature for path, inspected in self._models.items()}
        first = signatures[self.settings.model.path]
        for path, other in signatures.items():
            if other.inputs != first.inputs:
                raise BadConfiguration(
                    f"--set: {path} takes {other.takes}, {self.settings.model.path} takes {first.takes}; "
                    "only models that take the same can be asked the same"
                )
        return first

    def _example(self) -> Mapping[str, Array] | None:
        from worker.inference import example_of  # noqa: PLC0415 - as above

        example = example_of(self.settings.model, self.signature)
        return None if example is None else example.arrays

    def _encoding(self) -> Encoding:
        possible = encodings(self.signature)
        # Raw rows where the model takes them; else the binary-data form, which is the next cheapest to read.
        wanted = self.order.encoding or (possible[0] if possible[0] is Encoding.ROWS else Encoding.BINARY)
        if wanted not in possible:
            raise BadConfiguration(f"--encoding {wanted}: this model can be asked as {', '.join(possible)}")
        return Encoding(wanted)

    @property
    def request_bytes(self) -> int:
        """Of the longest request."""
        return max(len(request.value) for request in self.requests)

    @property
    def least_window(self) -> int:
        """Requests that fill the batches of all lanes, and as many again, under any of the settings."""
        batches = [(s.batching.max_batch_size, s.batching.max_inflight_batches + 2) for s in self._settings.values()]
        rows = max(size * count for size, count in batches) * self.order.replicas
        return -(-rows // self.order.rows_per_request)

    def part(self, column: Column) -> Part:
        settings = self._settings[column.name]
        batching, fixed_rows = settings.batching, self._models[settings.model.path].fixed_rows
        most = batching.max_batch_size if fixed_rows is None else min(batching.max_batch_size, fixed_rows)
        return Part(column, most, batching.lanes * self.order.replicas)

    def start(self, column: Column, site: Site) -> Contender:
        numbers = range(self.order.replicas)
        if column.kind is ContenderKind.WORKER:
            own = (self._own(column, site, number) for number in numbers)
            return Contender(Replica(each, os.environ, config=self.order.config) for each in own)
        jobs = (self._job(column, site, share) for share in numbers)
        return Contender(LoopProcess(site.kafka, self.settings.model, self.signature, job) for job in jobs)

    def _job(self, column: Column, site: Site, share: int) -> LoopJob:
        return LoopJob(
            kind=column.kind,
            requests=site.requests,
            answers=site.answers,
            group=site.group,
            share=share,
            of=self.order.replicas,
            rows=self.order.rows_per_request,
            are_rows=self.encoding is Encoding.ROWS,
        )

    def _own(self, column: Column, site: Site, number: int) -> dict[str, str]:
        """A replica's settings, by names without the prefix. None of the caller's topics and names is among them."""
        settings = self._settings[column.name]
        ours = {name: value for name, value in self._environ.items() if name.startswith("WORKER_") and "__" in name}
        own = {
            **{name.removeprefix("WORKER_"): value for name, value in (ours | dict(column.settings)).items()},
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
            own["KAFKA__GROUP_INSTANCE_ID"] = f"{site.group}-{number}"
        if settings.delivery.transactional_id is not None:
            own["DELIVERY__TRANSACTIONAL_ID"] = f"{site.group}-{number}"
        return own


def _is_set(variable: str, config: Path | None, environ: Mapping[str, str]) -> bool:
    """In the environment or in the file. What is wrong with the file is found when its settings are read."""
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


def _made_up(
    signature: Signature, rows: int, encoding: Encoding, given: Mapping[str, Array] | None
) -> Iterator[tuple[EncodedRequest, dict[str, int]]]:
    """Requests, always the same ones; and of each the lengths of the axes that the model's file leaves open."""
    rng, size = np.random.default_rng(0), 0
    for _ in range(_KINDS):
        feeds = example_feeds(signature, rows, rng, given)
        request = encode_request(signature, feeds, encoding)
        size += len(request.value)
        yield request, open_axes(signature.required, [feeds[spec.name].shape[1:] for spec in signature.required])
        if size > _KINDS_BYTES:
            return


def _spans(lengths: Sequence[Mapping[str, int]]) -> dict[str, Span]:
    return {axis: Span(min(of[axis] for of in lengths), max(of[axis] for of in lengths)) for axis in lengths[0]}
