"""Loops by hand for requests with headers, as careful as a loop must be. They differ in how they read, run and write.

    python -m bench.loops.polls NAME BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH RATE

    consume ─▶ read ─▶ an inference for each batch ─▶ write ─▶ produce ─▶ flush ─▶ commit

At least once, in the order of each partition: offsets are committed once the answers before them are delivered, and an
answer that is not delivered ends the loop. Answers have the worker's headers. A request that cannot be read or run gets
an error. They know requests of one row in one encoding, and no deadlines, limits, dead letters, states or metrics. They
run until they are killed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

import orjson
from confluent_kafka import KafkaException, Message
from tritonclient.grpc import service_pb2

from bench.loops import plain, records, swift
from bench.loops.by_hand import FAST_FETCH, clients
from bench.loops.plain import PROTOBUF, Answer, Header, Made
from bench.loops.task import Task

WAIT = 0.1  # seconds
# Records of a poll: the fastest of 512 to 8,192 (measured 2026-11-27). Texts of more than a thousand leave the cache;
# plain rows gain until a flush costs little next to answering them.
POLL, LONG_POLL = 1024, 4096
ECHOED = {"request-id", "correlation-id", "correlation_id", "kafka_correlationId", "traceparent", "tracestate"}


class Loop(NamedTuple):
    """How a loop reads, runs and writes, a description, and the records of a poll; None: as many as a batch."""

    make: Callable[[Task], Made[Any]]
    about: str
    poll: int | None = None


LOOPS = {
    "floor": Loop(swift.rows, "plain rows as fast as we could: a poll is checked and joined at once", LONG_POLL),
    "swift_json": Loop(swift.json, "JSON as fast as we could: orjson and packed data, texts sorted by length", POLL),
    "swift_protobuf": Loop(swift.protobuf, "protobuf as fast as we could: upb, answers behind one head", POLL),
    "swift_binary": Loop(swift.binary, "binary data as fast as we could", POLL),
    "plain_json": Loop(plain.json, "JSON as an afternoon gives it: orjson, padded to the bucket, one inference a poll"),
    "plain_protobuf": Loop(plain.protobuf, "protobuf as an afternoon gives it, with upb"),
    "plain_binary": Loop(plain.binary, "binary data as an afternoon gives it"),
    **{f"plain_{name}": Loop(make, records.ABOUT[name]) for name, make in records.JOBS.items()},
    **{
        f"swift_{name}": Loop(partial(records.in_batches, records.JOBS[name]), f"plain_{name} in longer polls", poll)
        for name, poll in {"fraud_json": POLL, "fraud_avro": POLL, "documents": 256}.items()
    },
}


def main() -> None:
    """Run one of the loops until killed."""
    loop, task = LOOPS[sys.argv[1]], Task.from_command_line()
    reports = {"delivery.report.only.error": True, "on_delivery": _not_delivered}
    consumer, producer = clients(task, FAST_FETCH, reports)
    made = loop.make(task)
    version = ("model-version", b"1@" + sha256(Path(task.model).read_bytes()).hexdigest()[:8].encode())
    ok: list[Header] = [("status", b"ok"), version]
    refused: list[Header] = [("status", b"error"), ("error-code", b"INVALID_ARGUMENT"), version]
    while True:
        messages = consumer.consume(loop.poll or task.batch, WAIT)
        for message, answer in zip(messages, answered(made, messages), strict=True):
            value, stated = answer if isinstance(answer, tuple) else refusal(answer, made.error_type)
            source = f"{message.topic()}/{message.partition()}/{message.offset()}"
            headers = [*stated, *(ok if isinstance(answer, tuple) else refused), ("source", source)]
            headers += [header for header in cast("list[Header]", message.headers() or []) if header[0] in ECHOED]
            producer.produce(task.responses, value, message.key(), headers=headers)
        producer.flush()
        if messages:
            consumer.commit(asynchronous=True)


def _not_delivered(error: object, _message: object) -> None:
    raise KafkaException(error)


def answered(made: Made[Any], messages: Sequence[Message]) -> list[Answer | Exception]:
    """Returns the answer to each message, or what is wrong with it."""
    found: list[Any] = []
    for message in messages:
        if error := message.error():
            raise KafkaException(error)
        try:
            found.append(made.read(message))
        except Exception as fault:  # noqa: BLE001  # whatever a parser or a look-up raises about one request
            found.append(fault)
    answers = iter(_run(made, [each for each in found if not isinstance(each, Exception)]))
    return [each if isinstance(each, Exception) else next(answers) for each in found]


def _run(made: Made[Any], requests: Sequence[Any]) -> list[Answer | Exception]:
    """Runs the requests together, and halves them if that fails, until one that fails is alone."""
    if not requests:
        return []
    try:
        return [*made.answers(requests)]
    except Exception as fault:  # noqa: BLE001  # whatever NumPy or ONNX Runtime raises
        half = len(requests) // 2
        return [*_run(made, requests[:half]), *_run(made, requests[half:])] if half else [fault]


def refusal(fault: Exception, content_type: bytes) -> Answer:
    """Returns the answer to a request that cannot be read or run."""
    text = f"{type(fault).__name__}: {fault}"[:1024]
    # An InferenceError is a text in field 1, like this message.
    said = service_pb2.ModelMetadataRequest(name=text).SerializeToString()
    return said if content_type == PROTOBUF else orjson.dumps({"error": text}), [("content-type", content_type)]


if __name__ == "__main__":
    main()
