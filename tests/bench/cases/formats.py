"""Requests that are not raw rows: Open Inference Protocol JSON, protobuf, and many rows in one request."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import orjson
from tritonclient.grpc import service_pb2

from tests.bench.cases.compute import ALONE
from tests.bench.loops.alone import SAME, alone
from tests.bench.measuring.bench import DEAR, SMALL, Bench
from tests.bench.measuring.ground import (
    GIVE_UP,
    LOOK_EVERY,
    PARTITIONS,
    WIDTH,
    Headers,
    Job,
    Values,
    fill,
    publish,
    raw_values,
    response_topic,
    there,
)
from tests.bench.measuring.results import Section
from tests.bench.measuring.running import WORKER, Running, running
from tests.bench.measuring.throughput import Figure, between, compared, look_on, measure
from tests.kafka.cluster import Cluster

JSON: Headers = [("content-type", b"application/json"), ("mlserver-model", b"model")]
PROTOBUF: Headers = [("content-type", b"application/x-protobuf")]
RAW, PROTO = f"{WORKER}, raw", f"{WORKER}, protobuf"
ROWS, MANY = 100, 256  # in one request, in one batch
MLSERVER_ROWS = 20_000
HOW_JSON = """Open Inference Protocol JSON, one row of 256 floats, batches of 64, an MLP 256→256→16. MLServer reads only
what is published after its start: its requests are published when it is ready; the others' lie in the topic before."""
HOW_PROTOBUF = """The same rows as `inference.ModelInferRequest` with `raw_input_contents` and as raw rows, batches of
64, an MLP 256→256→16."""
HOW_ROWS = f"""Raw requests of {ROWS} rows of 256 float32, batches of {MANY} rows, one thread an inference; results are
rows. `onnxruntime` is that library alone, with batches of as many rows."""


def measured(bench: Bench) -> Iterator[Section]:
    """JSON, protobuf, many rows."""
    yield json(bench)
    yield protobuf(bench)
    for name, hidden in (("small", SMALL), ("compute-bound", DEAR)):
        yield many_rows(bench, name, hidden)


def json(bench: Bench) -> Section:
    """Beside the hand loop with orjson, and MLServer."""
    rows = bench.rows(100_000)
    values = [_as_json(row) for row in raw_values()]
    requests = fill(bench.cluster, rows, values, JSON)
    job = Job(bench.cluster, [requests], bench.model(SMALL), 64)

    def run(name: str) -> Figure:
        if name == "mlserver":
            return late(name, job, values, min(rows, MLSERVER_ROWS), bench.asked.seconds)
        return measure(name, job, rows, bench.asked.seconds)

    turns = compared(bench, bench.contenders(WORKER, "json_loop", "mlserver"), run)
    bench.cluster.delete_topic(requests)
    bars = turns.bars({"json_loop": 1.0, "mlserver": 10.0})
    return Section("OIP JSON, batch 64", HOW_JSON, turns.columns, turns.lines, bars)


def late(name: str, job: Job, values: Values, rows: int, seconds: float) -> Figure:
    """One that reads only what comes after its start: its requests are published once it answers a first one."""
    cluster = job.cluster
    requests = cluster.create_topic("bench-late", partitions=PARTITIONS)
    with response_topic(cluster) as responses, running(name, replace(job, requests=[requests]), responses) as contender:
        before = _answering(contender, cluster, requests, responses, values)
        publish(cluster, requests, rows, values, JSON)
        looks = look_on(contender, lambda: there(cluster, responses) - before, rows, seconds)
    cluster.delete_topic(requests)
    return between(looks[0], looks[-1])


def _answering(contender: Running, cluster: Cluster, requests: str, responses: str, values: Values) -> int:
    """Ask until there is an answer; how many answers that makes."""
    deadline = time.monotonic() + GIVE_UP
    while not there(cluster, responses):
        assert time.monotonic() < deadline, f"{contender.name} does not answer"
        assert contender.why_dead() is None, contender.why_dead()
        publish(cluster, requests, 1, values, JSON)
        time.sleep(LOOK_EVERY * 4)
    time.sleep(1.0)  # for what is still on its way
    return there(cluster, responses)


def protobuf(bench: Bench) -> Section:
    """Beside our own raw path."""
    rows = bench.rows(200_000)
    topics = {
        RAW: fill(bench.cluster, rows),
        PROTO: fill(bench.cluster, rows, [_as_protobuf(value) for value in raw_values()], PROTOBUF),
    }
    model = bench.model(SMALL)
    turns = compared(
        bench,
        [RAW, PROTO],
        lambda name: measure(WORKER, Job(bench.cluster, [topics[name]], model, 64), rows, bench.asked.seconds),
    )
    for topic in topics.values():
        bench.cluster.delete_topic(topic)
    return Section("Protobuf, batch 64", HOW_PROTOBUF, turns.columns, turns.lines, turns.bars({RAW: 0.6}, PROTO))


def many_rows(bench: Bench, title: str, hidden: Sequence[int]) -> Section:
    """Beside ONNX Runtime alone."""
    count = bench.rows(1_000_000 if hidden == SMALL else 100_000) // ROWS
    values = [b"".join(raw_values()[at : at + ROWS]) for at in range(0, 1000, ROWS)]
    requests = fill(bench.cluster, count, values)
    job = Job(bench.cluster, [requests], bench.model(hidden), MANY)

    def run(name: str) -> Figure:
        if name == ALONE:
            return alone(SAME, job.model, MANY, bench.asked.seconds / 2)
        figure = measure(name, job, count, bench.asked.seconds)
        return figure._replace(rate=figure.rate * ROWS, cpu=figure.cpu / ROWS)

    turns = compared(bench, bench.contenders(WORKER, ALONE), run)
    bench.cluster.delete_topic(requests)
    title = f"Requests of {ROWS} rows, {title} model"
    return Section(title, HOW_ROWS, turns.columns, turns.lines, turns.bars({ALONE: 0.8}))


def _as_json(row: bytes) -> bytes:
    data = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": np.frombuffer(row, np.float32)}
    return orjson.dumps({"inputs": [data]}, option=orjson.OPT_SERIALIZE_NUMPY)


def _as_protobuf(row: bytes) -> bytes:
    x = service_pb2.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, WIDTH])
    message: bytes = service_pb2.ModelInferRequest(inputs=[x], raw_input_contents=[row]).SerializeToString()
    return message
