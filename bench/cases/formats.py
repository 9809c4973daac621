"""Requests other than bare rows: JSON, protobuf, binary data, rows with their type, many rows in one request."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import orjson
from tritonclient.grpc import service_pb2

from bench.cases.compute import ALONE
from bench.ground import (
    DEAR,
    GIVE_UP,
    HEADERS,
    LOOK_EVERY,
    PARTITIONS,
    SMALL,
    WIDTH,
    WORKER,
    Bench,
    Headers,
    Job,
    Values,
    fill,
    publish,
    raw_values,
    response_topic,
    there,
)
from bench.loops.alone import alone
from bench.running import Running, running
from bench.tables import Section
from bench.turns import Figure, between, compared, look_on, measure
from worker.codecs.wire_contract import HEAD_LENGTH

JSON: Headers = [("content-type", b"application/json"), ("mlserver-model", b"model")]
PROTOBUF: Headers = [("content-type", b"application/x-protobuf")]
STATED: Headers = [*HEADERS, ("datatype", b"FP32"), ("rows", b"1")]
RAW = f"{WORKER}, raw"
# The least rate of each encoding next to raw rows.
LEAST = {"datatype and rows": 0.7, "protobuf": 0.6, "binary": 0.3}
ROWS, MANY = 100, 256  # rows in one request, rows in one batch
LEAST_MANY = 500  # requests of many rows: fewer would be finished before the second look
MLSERVER_ROWS = 20_000
HOW_JSON = """Open Inference Protocol JSON, one row of 256 floats, batches of 64, an MLP 256→256→16. MLServer reads only
what is published after its start: its requests are published when it is ready; the others' lie in the topic before."""
HOW_ENCODED = """Rows of 256 float32, batches of 64, an MLP 256→256→16: as raw rows, as raw rows with the headers
`datatype` and `rows`, as `inference.ModelInferRequest` with `raw_input_contents`, and as JSON with binary data."""
HOW_ROWS = f"""Raw requests of {ROWS} rows of 256 float32, batches of {MANY} rows, one thread an inference; results are
rows. `onnxruntime` is that library alone, with batches of as many rows."""


def measured(bench: Bench) -> Iterator[Section]:
    """Yields the tables: JSON, the other encodings, many rows."""
    yield as_json(bench)
    yield encoded(bench)
    for name, hidden in (("small", SMALL), ("compute-bound", DEAR)):
        yield many_rows(bench, name, hidden)


def as_json(bench: Bench) -> Section:
    """Compares the worker with the hand loop for JSON and with MLServer."""
    rows = bench.rows(100_000)
    values = [_json(row) for row in raw_values()]
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
    """Measures a contender that reads only records published after its start. It gets them after its first answer."""
    cluster = job.cluster
    requests = cluster.create_topic("bench-late", partitions=PARTITIONS)
    with response_topic(cluster) as responses, running(name, replace(job, requests=[requests]), responses) as contender:
        before = _answering(contender, responses, values)
        publish(cluster, requests, rows, values, JSON)
        looks = look_on(contender, lambda: there(cluster, responses) - before, rows, seconds)
    cluster.delete_topic(requests)
    return between(looks[0], looks[-1])


def _answering(contender: Running, responses: str, values: Values) -> int:
    """Ask until there is an answer. Returns how many answers there are then."""
    cluster, (requests,) = contender.job.cluster, contender.job.requests
    deadline = time.monotonic() + GIVE_UP
    while not there(cluster, responses):
        assert time.monotonic() < deadline, f"{contender.name} does not answer"
        contender.check()
        publish(cluster, requests, 1, values, JSON)
        time.sleep(LOOK_EVERY * 4)
    time.sleep(1.0)  # for answers that are still on their way
    return there(cluster, responses)


def encoded(bench: Bench) -> Section:
    """Compares the worker with each encoding, and the workers of the checkouts that `--root` names, with each, too."""
    rows, plain = bench.rows(200_000), raw_values()
    offered: dict[str, tuple[Values, Headers]] = {
        RAW: (plain, HEADERS),
        f"{WORKER}, datatype and rows": (plain, STATED),
        f"{WORKER}, protobuf": ([_protobuf(row) for row in plain], PROTOBUF),
        f"{WORKER}, binary": ([_binary(row)[1] for row in plain], _binary(plain[0])[0]),
    }
    topics = {name: fill(bench.cluster, rows, *given) for name, given in offered.items()}
    model, names = bench.model(SMALL), [*offered]
    names += [f"{WORKER}@{root}{name.removeprefix(WORKER)}" for root in bench.asked.roots for name in offered]

    def run(name: str) -> Figure:
        who, _, encoding = name.partition(", ")
        job = Job(bench.cluster, [topics[f"{WORKER}, {encoding}"]], model, 64)
        return measure(who, job, rows, bench.asked.seconds)

    turns = compared(bench, names, run)
    for topic in topics.values():
        bench.cluster.delete_topic(topic)
    bars = [bar for name, least in LEAST.items() for bar in turns.bars({RAW: least}, f"{WORKER}, {name}")]
    return Section("Encodings, batch 64", HOW_ENCODED, turns.columns, turns.lines, bars)


def many_rows(bench: Bench, title: str, hidden: Sequence[int]) -> Section:
    """Compares the worker with ONNX Runtime alone."""
    count = max(LEAST_MANY, bench.rows(1_000_000 if hidden == SMALL else 100_000) // ROWS)
    values = [b"".join(raw_values()[at : at + ROWS]) for at in range(0, 1000, ROWS)]
    requests = fill(bench.cluster, count, values)
    job = Job(bench.cluster, [requests], bench.model(hidden), MANY)

    def run(name: str) -> Figure:
        if name == ALONE:
            return alone(job.model, MANY, bench.asked.seconds / 2)
        figure = measure(name, job, count, bench.asked.seconds)
        return figure._replace(rate=figure.rate * ROWS, cpu=figure.cpu / ROWS)

    turns = compared(bench, bench.contenders(WORKER, ALONE), run)
    bench.cluster.delete_topic(requests)
    title = f"Requests of {ROWS} rows, {title} model"
    return Section(title, HOW_ROWS, turns.columns, turns.lines, turns.bars({ALONE: 0.8}))


def _json(row: bytes) -> bytes:
    given = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": np.frombuffer(row, np.float32)}
    return orjson.dumps({"inputs": [given]}, option=orjson.OPT_SERIALIZE_NUMPY)


def _binary(row: bytes) -> tuple[Headers, bytes]:
    """Makes a request of JSON, followed by the tensor's bytes."""
    size = {"binary_data_size": len(row)}
    head = json.dumps({"inputs": [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "parameters": size}]}).encode()
    headers = [*HEADERS, (HEAD_LENGTH, b"%d" % len(head))]
    return headers, head + row


def _protobuf(row: bytes) -> bytes:
    x = service_pb2.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, WIDTH])
    message: bytes = service_pb2.ModelInferRequest(inputs=[x], raw_input_contents=[row]).SerializeToString()
    return message
