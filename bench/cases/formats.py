"""Requests other than bare rows: JSON, protobuf, binary data, rows with their type, many rows in one request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from bench.cases.compute import ALONE
from bench.ground import (
    DEAR,
    GIVE_UP,
    HEADERS,
    LOOK_EVERY,
    PARTITIONS,
    SMALL,
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
from bench.requests import JSON, Feeds, Request, as_binary, as_json, as_protobuf
from bench.running import Running, running
from bench.tables import Section
from bench.turns import Figure, between, compared, look_on, measure, over_requests
from tests.models import mlp, save

STATED: Headers = [*HEADERS, ("datatype", b"FP32"), ("rows", b"1")]
RAW = f"{WORKER}, raw"
LOOPS = PLAIN, _ = "plain_json", "swift_json"
# The least rate of each encoding next to raw rows.
LEAST = {"datatype and rows": 0.7, "protobuf": 0.6, "binary": 0.3}
PIXELS = 784
ROWS, MANY = 100, 256  # rows in one request, rows in one batch
LEAST_MANY = 500  # requests of many rows: fewer would be finished before the second look
MLSERVER_ROWS = 20_000
HOW_JSON = """Open Inference Protocol JSON, one row of 256 floats, batches of 64, an MLP 256→256→16. MLServer reads only
what is published after its start: its requests are published when it is ready; the others' lie in the topic before."""
HOW_IMAGES = """JSON of 28 x 28 floats, as Crayfish's MNIST requests, batches of 64, Crayfish's MLP 784→32→32→32→10."""
HOW_ENCODED = """Rows of 256 float32, batches of 64, an MLP 256→256→16: as raw rows, as raw rows with the headers
`datatype` and `rows`, as `inference.ModelInferRequest` with `raw_input_contents`, and as JSON with binary data."""
HOW_ROWS = f"""Raw requests of {ROWS} rows of 256 float32, batches of {MANY} rows, one thread an inference; results are
rows. `onnxruntime` is that library alone, with batches of as many rows."""


def measured(bench: Bench) -> Iterator[Section]:
    """Yields the tables: JSON, the other encodings, many rows."""
    yield json(bench)
    yield images(bench)
    yield encoded(bench)
    for name, hidden in (("small", SMALL), ("compute-bound", DEAR)):
        yield many_rows(bench, name, hidden)


def json(bench: Bench) -> Section:
    """Compares the worker with the loops for JSON and with MLServer."""
    rows = bench.rows(100_000)
    values = [request.value for request in _written(as_json)]
    requests = fill(bench.cluster, rows, values, JSON)
    job = Job(bench.cluster, [requests], bench.model(SMALL), 64)

    def run(name: str) -> Figure:
        if name == "mlserver":
            return late(name, job, values, min(rows, MLSERVER_ROWS), bench.asked.seconds)
        return measure(name, job, rows, bench.asked.seconds)

    turns = compared(bench, bench.contenders(WORKER, *LOOPS, "mlserver"), run)
    bench.cluster.delete_topic(requests)
    bars = turns.bars({PLAIN: 1.0, "mlserver": 10.0})
    return Section("OIP JSON, batch 64", HOW_JSON, turns.columns, turns.lines, bars)


def images(bench: Bench) -> Section:
    """Compares the worker with the loops for JSON."""
    drawn = np.random.default_rng(3).standard_normal((1000, PIXELS), np.float32)
    model = save(mlp(PIXELS, (32, 32, 32), 10), bench.folder, "crayfish")
    requests = [as_json({"x": row[None]}) for row in drawn]
    turns = over_requests(bench, bench.contenders(WORKER, *LOOPS), {"": requests}, model, 50_000)
    bars = turns.bars({PLAIN: 1.0})
    return Section("OIP JSON of images, batch 64", HOW_IMAGES, turns.columns, turns.lines, bars)


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
    plain = raw_values()
    offered = {
        "raw": [Request(row, HEADERS) for row in plain],
        "datatype and rows": [Request(row, STATED) for row in plain],
        "protobuf": _written(as_protobuf),
        "binary": _written(as_binary),
    }
    names = [f"{who}, {what}" for who in bench.workers for what in offered]
    turns = over_requests(bench, names, offered, bench.model(SMALL), 200_000)
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


def _written(write: Callable[[Feeds], Request]) -> list[Request]:
    """Writes the raw rows in another encoding."""
    return [write({"x": np.frombuffer(row, np.float32)[None]}) for row in raw_values()]
