"""The loop that people write without a framework, measured next to the worker.

It polls some requests, runs them, produces the answers and commits. If it takes requests one by one, a timer commits,
whatever happened to the answer. A bad request ends it. It has its own process, which loads the model as a worker does.
It reads rows as one would by hand, and other encodings with the worker's own codec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from multiprocessing.connection import Connection as Pipe
from typing import cast

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from worker.codecs.examples import EncodingName
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.chunk import Prediction
from worker.core.failures import Incomplete, RunFailure
from worker.core.records import Array, ClosedBy, Headers, Partition, Record
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Stacker
from worker.kafka.client.command_clients import client_log, open_client, reach
from worker.kafka.client.config import Config
from worker.settings import ModelSettings
from worker.tools.bench.generator import Site
from worker.tools.profile.sweep import codec_of

Taken = tuple[bytes, Headers]
Run = Callable[[Mapping[str, Array]], Sequence[Array]]

NOWHERE = Partition("", 0)
# Seconds of the longest wait for a batch to fill.
_FILL_S = 0.01
# With the client's default, a fast loop starves for a second each time the client has read 64 MB ahead.
_READING: Config = {"fetch.queue.backoff.ms": 20}
_WRITING: Config = {"linger.ms": 5}
_SAFE: Config = {"enable.idempotence": True, "partitioner": "murmur2_random"}


def answer_for_ever(
    line: Pipe, settings: ModelSettings, signature: Signature, site: Site, at_once: int, encoding: EncodingName
) -> None:
    """Run one loop, in which `at_once` requests share an inference. Sends `ready` when it is about to begin.

    Raises `BadConfiguration` if no broker answers, or if the topic does not exist for us.
    """
    from worker.inference.model_loading import load  # noqa: PLC0415 - ONNX Runtime takes its time

    model = load(settings, max_batch_size=at_once)

    def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
        found = model.run(feeds)
        if isinstance(found, RunFailure):
            raise Incomplete(f"the model fails on a request that was made for it: {found.message}")
        return found

    takes, gives = signature.inputs, signature.outputs
    is_plain = encoding is EncodingName.ROWS and len(takes) == len(gives) == 1 and not gives[0].is_text
    answers = (_by_hand if is_plain else _by_codec)(signature, run)
    partitions = reach(site.requests, site.kafka, "READ").cluster.topics[site.requests].partitions
    reading = {"group.id": site.group, "enable.auto.commit": at_once == 1, "auto.offset.reset": "earliest"}
    consumer = open_client(Consumer, site.kafka, _READING, reading, client_log())
    producer = open_client(Producer, site.kafka, _WRITING, _SAFE, client_log())
    consumer.assign([TopicPartition(site.requests, number, 0) for number in partitions])
    line.send("ready")
    while True:
        messages = [message for message in consumer.consume(at_once, _FILL_S) if message.error() is None]
        taken = [(message.value() or b"", cast("Headers", message.headers() or ())) for message in messages]
        for message, (_, headers), value in zip(messages, taken, answers(taken) if taken else (), strict=True):
            while True:
                try:
                    producer.produce(site.answers, value, message.key(), headers=[*headers, ("status", b"ok")])
                    break
                except BufferError:
                    producer.poll(_FILL_S)
        producer.poll(0)
        if at_once > 1 and messages:
            producer.flush()
            consumer.commit(asynchronous=False)


def _by_hand(signature: Signature, run: Run) -> Callable[[Sequence[Taken]], Sequence[bytes]]:
    """Answers rows with rows: joins them, runs the model, and cuts its output."""
    (spec,) = signature.inputs
    shape = tuple(d for d in spec.dims if d is not None)

    def answers(taken: Sequence[Taken]) -> Sequence[bytes]:
        rows = [np.frombuffer(value, spec.dtype).reshape(-1, *shape) for value, _ in taken]
        ends = np.cumsum([len(some) for some in rows])
        return [part.tobytes() for part in np.split(run({spec.name: np.concatenate(rows)})[0], ends[:-1])]

    return answers


def _by_codec(signature: Signature, run: Run) -> Callable[[Sequence[Taken]], Sequence[bytes]]:
    """Answers any encoding with the worker's codec. Requests of one shape share an inference."""
    codec, stacker = codec_of(signature), Stacker(signature)
    batcher = Batcher({signature.key: BatchPolicy(1, 1, 0.0)})  # it sorts, and holds nothing

    def answers(taken: Sequence[Taken]) -> Sequence[bytes]:
        records = [Record(NOWHERE, at, None, value, headers, None) for at, (value, headers) in enumerate(taken)]
        chunks, rejections, _ = codec.read(records)
        if rejections:
            raise Incomplete(f"a request that bench has made cannot be read: {rejections[0][1].message}")
        found = [b""] * len(taken)
        for _, alike in chain.from_iterable(map(batcher.by_kind, chunks)):
            batch, _ = stacker.stack([alike], ClosedBy.SIZE)
            assert batch is not None
            written = codec.messages(codec.write(Prediction(alike, run(batch.feeds))))
            for at, (_, _, value, *_) in zip(alike.at, written, strict=True):
                found[at] = value or b""
        return found

    return answers
