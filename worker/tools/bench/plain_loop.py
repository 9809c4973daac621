"""The loops that one writes without a framework, for the worker to be measured next to.

The plain loop polls a batch, runs it, produces the answers and commits. One by one polls a request, runs it, produces,
and commits by a timer, whatever became of the answer. A bad request ends either. Each runs in a process of its own,
which loads the model as a worker does. Rows are read as one would by hand, other encodings by the worker's own codecs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple, cast

import numpy as np
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from worker.codecs.registry import Codecs
from worker.codecs.wire_contract import MIB, Wire
from worker.core.failures import Incomplete, KafkaFatal, RunFailure
from worker.core.records import Array, ClosedBy, Headers, Partition, Prediction, Record, Rejection, Request
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Stacker
from worker.kafka.client.command_clients import client_log, open_client, reach, why_unusable
from worker.kafka.client.config import Config
from worker.kafka.client.errors import is_closed
from worker.settings import ModelSettings
from worker.tools.bench.children import Child
from worker.tools.bench.generator import Site

Taken = tuple[bytes, Headers]
Answers = Callable[[Sequence[Taken]], Sequence[bytes]]
Run = Callable[[Mapping[str, Array]], Sequence[Array]]

_NOWHERE = Partition("", 0)
_STATUS = ("status", b"ok")
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


class LoopProcess(Child):
    """One loop, in a process of its own."""

    def __init__(self, model: ModelSettings, signature: Signature, job: LoopJob) -> None:
        super().__init__("the loop", answer_for_ever, model, signature, job)

    def wait_until_ready(self) -> None:
        """Wait until it has its model and its partitions. Raises `Stop`."""
        self.receive()


def answer_for_ever(line: Pipe, settings: ModelSettings, signature: Signature, job: LoopJob) -> None:
    """One loop; sends `ready` when it is about to begin."""
    from worker.inference import load  # noqa: PLC0415 - ONNX Runtime takes its time

    model = load(settings, max_batch_size=job.at_once)

    def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
        found = model.run(feeds)
        if isinstance(found, RunFailure):
            raise Incomplete(f"the model fails on a request that was made for it: {found.message}")
        return found

    takes, gives = signature.inputs, signature.outputs
    is_plain = job.are_rows and len(takes) == len(gives) == 1 and not gives[0].is_text
    loop = _Loop(job, (by_hand if is_plain else by_codecs)(signature, run))
    line.send("ready")
    while True:
        loop.turn()


class _Loop:
    """Answers one topic into another. One request at once commits by a timer, a batch behind a flush."""

    def __init__(self, job: LoopJob, answers: Answers) -> None:
        """Raises `BadConfiguration` when no broker answers, or there is no such topic for us."""
        self._site, self._most, self._answers = job.site, job.at_once, answers
        kafka, topic = job.site.kafka, job.site.requests
        partitions = reach(topic, kafka, "READ").cluster.topics[topic].partitions
        reading = {"group.id": job.site.group, "enable.auto.commit": self._most == 1, "auto.offset.reset": "earliest"}
        self._consumer = open_client(Consumer, kafka, _READING, reading, client_log())
        self._producer = open_client(Producer, kafka, _WRITING, _SAFE, client_log())
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])

    def turn(self) -> None:
        """Poll, run, produce; flush and commit a batch."""
        messages = self._consumer.consume(self._most, _FILL_S)
        self._answer(messages)
        self._producer.poll(0)
        if self._most > 1 and messages:
            self._producer.flush()
            self._consumer.commit(asynchronous=False)

    def _answer(self, messages: Sequence[Message]) -> None:
        """Raises `KafkaFatal` when the topic is closed to us."""
        for message in messages:
            if (error := message.error()) is not None and is_closed(error):
                raise KafkaFatal(why_unusable(self._site.requests, error, "READ"))
        good = [message for message in messages if message.error() is None]
        taken = [(message.value() or b"", cast("Headers", message.headers() or ())) for message in good]
        for message, (_, headers), value in zip(good, taken, self._answers(taken), strict=True):
            while True:
                try:
                    self._producer.produce(self._site.answers, value, message.key(), headers=[*headers, _STATUS])
                    break
                except BufferError:
                    self._producer.poll(_FILL_S)


def by_hand(signature: Signature, run: Run) -> Answers:
    """Rows in, rows out: joined, run and cut."""
    (spec,) = signature.inputs
    shape = tuple(d for d in spec.dims if d is not None)

    def answers(taken: Sequence[Taken]) -> Sequence[bytes]:
        if not taken:
            return []
        rows = [np.frombuffer(value, spec.dtype).reshape(-1, *shape) for value, _ in taken]
        ends = np.cumsum([len(some) for some in rows])
        return [part.tobytes() for part in np.split(run({spec.name: np.concatenate(rows)})[0], ends[:-1])]

    return answers


def by_codecs(signature: Signature, run: Run) -> Answers:
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
    wire = Wire("", "", max_request_bytes=1024 * MIB, max_answer_bytes=1024 * MIB)
    return Codecs([signature], wire, tell=lambda _: None)


def decoded(codecs: Codecs, taken: Sequence[Taken]) -> Iterator[Request]:
    """The requests. Raises `Incomplete` for one that cannot be read."""
    for value, headers in taken:
        request = codecs.decode(Record(_NOWHERE, 0, None, value, headers, None))
        if isinstance(request, Rejection):
            raise Incomplete(f"a request that bench has made cannot be read: {request.message}")
        yield request
