"""The loop that one writes without a framework, for the worker to be measured next to.

It polls some requests, runs them, produces the answers and commits. One by one it commits by a timer, whatever became
of the answer. A bad request ends it. It runs in a process of its own, which loads the model as a worker does. Rows are
read as one would by hand, other encodings by the worker's own codecs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple, cast

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from worker.codecs.registry import Codecs
from worker.codecs.wire_contract import MIB, Wire
from worker.core.failures import Incomplete, RunFailure
from worker.core.records import Array, ClosedBy, Headers, Partition, Prediction, Record, Rejection, Request
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Stacker
from worker.kafka.client.command_clients import client_log, open_client, reach
from worker.kafka.client.config import Config
from worker.settings import ModelSettings
from worker.tools.bench.generator import Site

Taken = tuple[bytes, Headers]
Run = Callable[[Mapping[str, Array]], Sequence[Array]]

_NOWHERE = Partition("", 0)
# The longest wait for a batch to fill, seconds.
_FILL_S = 0.01
# With the client's default a fast loop starves for a second whenever the client has read 64 MB ahead.
_READING: Config = {"fetch.queue.backoff.ms": 20}
_WRITING: Config = {"linger.ms": 5}
_SAFE: Config = {"enable.idempotence": True, "partitioner": "murmur2_random"}


class LoopJob(NamedTuple):
    """A loop's job: `at_once` requests share a run. `are_rows`: a request's value is its rows and nothing else."""

    site: Site
    at_once: int
    are_rows: bool


def answer_for_ever(line: Pipe, settings: ModelSettings, signature: Signature, job: LoopJob) -> None:
    """One loop; sends `ready` when it is about to begin.

    Raises `BadConfiguration` when no broker answers, or there is no such topic for us.
    """
    from worker.inference import load  # noqa: PLC0415 - ONNX Runtime takes its time

    model, site = load(settings, max_batch_size=job.at_once), job.site

    def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
        found = model.run(feeds)
        if isinstance(found, RunFailure):
            raise Incomplete(f"the model fails on a request that was made for it: {found.message}")
        return found

    takes, gives = signature.inputs, signature.outputs
    is_plain = job.are_rows and len(takes) == len(gives) == 1 and not gives[0].is_text
    answers = (_by_hand if is_plain else _by_codecs)(signature, run)
    partitions = reach(site.requests, site.kafka, "READ").cluster.topics[site.requests].partitions
    reading = {"group.id": site.group, "enable.auto.commit": job.at_once == 1, "auto.offset.reset": "earliest"}
    consumer = open_client(Consumer, site.kafka, _READING, reading, client_log())
    producer = open_client(Producer, site.kafka, _WRITING, _SAFE, client_log())
    consumer.assign([TopicPartition(site.requests, number, 0) for number in partitions])
    line.send("ready")
    while True:
        messages = [message for message in consumer.consume(job.at_once, _FILL_S) if message.error() is None]
        taken = [(message.value() or b"", cast("Headers", message.headers() or ())) for message in messages]
        for message, (_, headers), value in zip(messages, taken, answers(taken) if taken else (), strict=True):
            while True:
                try:
                    producer.produce(site.answers, value, message.key(), headers=[*headers, ("status", b"ok")])
                    break
                except BufferError:
                    producer.poll(_FILL_S)
        producer.poll(0)
        if job.at_once > 1 and messages:
            producer.flush()
            consumer.commit(asynchronous=False)


def _by_hand(signature: Signature, run: Run) -> Callable[[Sequence[Taken]], Sequence[bytes]]:
    """Rows in, rows out: joined, run and cut."""
    (spec,) = signature.inputs
    shape = tuple(d for d in spec.dims if d is not None)

    def answers(taken: Sequence[Taken]) -> Sequence[bytes]:
        rows = [np.frombuffer(value, spec.dtype).reshape(-1, *shape) for value, _ in taken]
        ends = np.cumsum([len(some) for some in rows])
        return [part.tobytes() for part in np.split(run({spec.name: np.concatenate(rows)})[0], ends[:-1])]

    return answers


def _by_codecs(signature: Signature, run: Run) -> Callable[[Sequence[Taken]], Sequence[bytes]]:
    """Any encoding, by the worker's codecs; requests of one shape share a run."""
    codecs, stacker = codecs_of(signature), Stacker(signature)

    def answers(taken: Sequence[Taken]) -> Sequence[bytes]:
        alike: dict[object, list[tuple[int, Request]]] = defaultdict(list)
        for at, request in enumerate(decoded(codecs, taken)):
            alike[request.shapes].append((at, request))
        found = [b""] * len(taken)
        for numbered in alike.values():
            batch, _ = stacker.stack([request for _, request in numbered], ClosedBy.SIZE)
            assert batch is not None
            outputs, begin = run(batch.feeds), 0
            for at, request in numbered:
                end = begin + request.rows
                found[at] = codecs.encode(Prediction(request, outputs, begin, end))[0].value or b""
                begin = end
        return found

    return answers


def codecs_of(signature: Signature) -> Codecs:
    """The worker's codecs for one model, with limits that no request made for it meets."""
    wire = Wire("", "", max_request_bytes=1024 * MIB, max_json_bytes=1024 * MIB, max_answer_bytes=1024 * MIB)
    return Codecs([signature], wire, tell=lambda _: None)


def decoded(codecs: Codecs, taken: Sequence[Taken]) -> Iterator[Request]:
    """The requests. Raises `Incomplete` for one that cannot be read."""
    for value, headers in taken:
        request = codecs.decode(Record(_NOWHERE, 0, None, value, headers, None))
        if isinstance(request, Rejection):
            raise Incomplete(f"a request that bench has made cannot be read: {request.message}")
        yield request
