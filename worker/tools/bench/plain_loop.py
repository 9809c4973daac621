"""The loop that one writes without a framework: poll, answer, produce. What a measurement compares the worker with.

It promises nothing: offsets are committed by a timer, whatever became of the answers, and a bad request ends it. It is
written to be fast at what it does: no answer waits for company that is not coming, and no partition for a rebalance.

It runs in a process of its own, which loads the model as a worker does, and answers what the model says or as many
bytes. Rows are read as one would by hand, other encodings by the worker's own codecs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple, cast

import numpy as np
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from worker.codecs import Codecs, Wire
from worker.codecs.wire_contract import MIB
from worker.core.failures import Incomplete, KafkaFatal, RunFailure
from worker.core.records import Array, ClosedBy, Headers, Partition, Prediction, Record, Rejection
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Stacker
from worker.kafka.client.command_clients import client_log, open_client, reach, why_unusable
from worker.kafka.client.config import Config
from worker.kafka.client.errors import is_closed
from worker.settings import Connection, ModelSettings
from worker.tools.bench.columns import ContenderKind
from worker.tools.load.children import START_S, Child

Answer = Callable[[bytes, Headers], bytes]
Run = Callable[[Mapping[str, Array]], Sequence[Array]]

# Records at a time of the loop that only copies.
_AT_ONCE = 1000
_NOWHERE = Partition("", 0)

_STATUS = ("status", b"ok")
# With nothing to do it waits so long for the first record, seconds.
_IDLE = 0.1
_FLUSH = 0.001  # the client sends at once what waits for its `linger.ms`, as the worker's sink has it
_FULL = 0.05

_READING: Config = {"fetch.queue.backoff.ms": 20, "queued.max.messages.kbytes": 32 * 1024}
_WRITING: Config = {"linger.ms": 5, "queue.buffering.max.messages": 100_000}
_SAFE: Config = {"enable.idempotence": True, "partitioner": "murmur2_random"}


class PlainLoop:
    """Answers one topic into another until it is killed. `answer` makes a value of a request's value and headers."""

    def __init__(self, kafka: Connection, requests: str, answers: str, group: str, answer: Answer) -> None:
        """Raises `BadConfiguration` when no broker answers, or there is no such topic for us."""
        self._requests, self._answers, self._answer = requests, answers, answer
        self._partitions = sorted(reach(requests, kafka, "READ").cluster.topics[requests].partitions)
        reading = {"group.id": group, "enable.auto.commit": True, "auto.offset.reset": "earliest"}
        self._consumer = open_client(Consumer, kafka, _READING, reading, client_log())
        self._producer = open_client(Producer, kafka, _WRITING, _SAFE, client_log())

    def assign(self, index: int, of: int) -> None:
        """Take each of so many shares' partitions from their beginnings; `index` is ours, from 0."""
        mine = self._partitions[index::of]
        self._consumer.assign([TopicPartition(self._requests, number, 0) for number in mine])

    def run(self, at_once: int) -> None:
        """Take `at_once` records at a time at most. Raises `KafkaFatal` when a topic is closed to us."""
        while True:
            messages = self._consumer.consume(at_once, 0)
            if not messages:
                self._push()
                first = self._consumer.poll(_IDLE)
                messages = [] if first is None else [first]
            self._answer_all(messages)

    def _answer_all(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if (error := message.error()) is None:
                self._produce(message)
            elif is_closed(error):
                raise KafkaFatal(why_unusable(self._requests, error, "READ"))
        self._producer.poll(0)

    def _produce(self, message: Message) -> None:
        headers = cast("Headers", message.headers() or ())
        value = self._answer(message.value() or b"", headers)
        while True:
            try:
                self._producer.produce(self._answers, value, message.key(), headers=[*headers, _STATUS])
            except BufferError:
                self._producer.poll(_FULL)
            else:
                return

    def _push(self) -> None:
        if len(self._producer):
            self._producer.flush(_FLUSH)


class LoopJob(NamedTuple):
    """What one plain loop has to do: the `share`th of `of` shares of the partitions. A request has `rows` rows.

    `are_rows`: its value is those rows and nothing else.
    """

    kind: ContenderKind
    requests: str
    answers: str
    group: str
    share: int
    of: int
    rows: int
    are_rows: bool


class LoopProcess(Child):
    """One plain loop, in a process of its own. It holds nothing that an orderly end would save."""

    def __init__(self, kafka: Connection, model: ModelSettings, signature: Signature, job: LoopJob) -> None:
        name = f"the {job.kind.replace('_', ' ')} loop"
        super().__init__(name, answer_for_ever, kafka, model, signature, job)

    def wait_until_ready(self) -> None:
        """Until it has its model and its partitions. Raises `Stop`."""
        self.receive(START_S)

    def stop(self) -> None:
        """Nothing: it is killed when it is closed."""


def answer_for_ever(line: Pipe, kafka: Connection, model: ModelSettings, signature: Signature, job: LoopJob) -> None:
    """One plain loop; sends `ready` when it is about to begin."""
    is_copying = job.kind is ContenderKind.PASS_THROUGH
    answer = _copy(signature, job.rows) if is_copying else _one_by_one(model, are_rows=job.are_rows)
    loop = PlainLoop(kafka, job.requests, job.answers, job.group, answer)
    loop.assign(job.share, job.of)
    line.send("ready")
    loop.run(_AT_ONCE if is_copying else 1)


def _copy(signature: Signature, rows: int) -> Answer:
    """As many bytes as the answer has; where the model does not say, as many as the request has."""
    sizes = [spec.row_bytes for spec in signature.outputs]
    if None in sizes:
        return lambda value, _headers: value
    blank = bytes(rows * sum(size for size in sizes if size is not None))
    return lambda _value, _headers: blank


def _one_by_one(settings: ModelSettings, *, are_rows: bool) -> Answer:
    from worker.inference import load  # noqa: PLC0415 - ONNX Runtime takes its time, and half of the loops do without

    model = load(settings, max_batch_size=1)

    def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
        found = model.run(feeds)
        if isinstance(found, RunFailure):
            raise Incomplete(f"the model fails on a request that was made for it: {found.message}")
        return found

    takes, gives = model.signature.inputs, model.signature.outputs
    is_plain = are_rows and len(takes) == len(gives) == 1 and not gives[0].is_text
    return (_by_hand if is_plain else _by_codecs)(model.signature, run)


def _by_hand(signature: Signature, run: Run) -> Answer:
    (spec,) = signature.inputs
    shape = tuple(d for d in spec.dims if d is not None)

    def answer(value: bytes, _headers: Headers) -> bytes:
        rows = np.frombuffer(value, spec.dtype).reshape(-1, *shape)
        return run({spec.name: rows})[0].tobytes()

    return answer


def _by_codecs(signature: Signature, run: Run) -> Answer:
    wire = Wire("", "", max_request_bytes=1024 * MIB, max_answer_bytes=1024 * MIB)
    codecs, stacker = Codecs([signature], wire, tell=lambda _: None), Stacker(signature)

    def answer(value: bytes, headers: Headers) -> bytes:
        request = codecs.decode(Record(_NOWHERE, 0, None, value, headers, None))
        if isinstance(request, Rejection):
            raise Incomplete(f"the one-by-one loop cannot read a request that bench has made: {request.message}")
        batch, _ = stacker.stack([request], ClosedBy.SIZE)
        assert batch is not None
        (message,) = codecs.encode(Prediction(request, tuple(run(batch.feeds))))
        return message.value or b""

    return answer
