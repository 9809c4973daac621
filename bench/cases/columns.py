"""Requests of several inputs: texts as an encoder takes them, and rows of a table; models that cost next to nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bench.answers import answered
from bench.ground import WORKER, Bench, Job, fill
from bench.loops.task import opened
from bench.requests import Feeds, Request, as_binary, as_json, as_protobuf
from bench.tables import Bar, Section
from bench.turns import over_requests
from tests.models import FLOAT, model, save
from tests.ragged import BUCKETS, long_tailed, padded
from tests.ragged import texts as word_ids

KINDS = 1000  # different requests
USUAL = 200_000  # requests of a run
VOCABULARY = 30_522  # BERT's
CITIES = ("Amsterdam", "Berlin", "Córdoba", "Dublin", "Oslo", "Paris", "Rome", "Zürich")


# How texts are written in each encoding, the loops for it, and the worker's least rate next to the first loop.
FORMS = {
    "protobuf": (as_protobuf, ("plain_protobuf", "swift_protobuf"), 1.3),
    "JSON": (as_json, ("plain_json", "swift_json"), 1.0),
    "binary data": (as_binary, ("plain_binary", "swift_binary"), 1.3),
}
# The parts of the requests that are bad in the offers of `hostile`, and the ways in which they are bad: they end too
# early, are empty, have an unknown input, and another datatype. All but the second are as long as a good one.
PARTS = {"all good": 0.0, "1 in 100 bad": 0.01, "1 in 10 bad": 0.1, "1 in 2 bad": 0.5, "all bad": 1.0}
SPOILS: Sequence[Callable[[bytes], bytes]] = (
    lambda value: value[:-1],
    lambda _: b"",
    lambda value: value.replace(b"input_ids", b"input_idx"),
    lambda value: value.replace(b"INT64", b"INT32"),
)
CHECKED = 10_000  # requests of an offer whose answers are read
HOW_TEXTS = """Texts of 4 to 256 tokens, 40 on average, as three INT64, keyed, 4 partitions, five buckets, batches
of 64, at least once. The model multiplies, adds, and gives 384 floats: it costs next to nothing."""
HOW_HOSTILE = f"""The same texts. Bad ones, at random, end too early, are empty, name an unknown input, or have another
datatype. Before, {CHECKED:,} answers to each offer were read: each request has one, its own row or an error."""
HOW_TABLES = """JSON of a text, a whole number and two floats, one column each, batches of 64. The model looks the text
up, and gives a class and two probabilities."""


def texts(bench: Bench) -> Iterator[Section]:
    """Yields a table for each encoding."""
    path, feeds = save(text_model(), bench.folder, "texts"), text_feeds()
    for name, (write, loops, least) in FORMS.items():
        requests = {"": [*map(write, feeds)]}
        names = bench.contenders(WORKER, *loops)
        turns = over_requests(bench, names, requests, path, USUAL, BATCHING__BUCKETS=BUCKETS)
        cost = turns.ratio(WORKER, loops[0], lambda run: run.cpu)
        bars = [*turns.bars({loops[0]: least}), Bar(f"CPU of a result, worker beside {loops[0]}", cost, most=1.0)]
        yield Section(f"Texts in {name}", HOW_TEXTS, turns.columns, turns.lines, bars)


def hostile(bench: Bench) -> Iterator[Section]:
    """Yields a table of texts that cannot all be read, after a look at the answers to each offer."""
    path, feeds = save(text_model(), bench.folder, "texts"), text_feeds()
    good, alone = [*map(as_protobuf, feeds)], opened(str(path))
    right = {each.value: alone.run(None, given)[0].tobytes() for each, given in zip(good, feeds, strict=True)}
    offered = {what: spoiled(good, part) for what, part in PARTS.items()}
    settings = {"BATCHING__BUCKETS": BUCKETS, "DELIVERY__REJECTION_LIMIT": "0"}
    for what, requests in offered.items():
        answered_once(requests, right, Job(bench.cluster, [], path, 64, settings))
        bench.tell(f"{what}: {CHECKED:,} requests are answered once and rightly")
    names = [f"{who}, {what}" for who in bench.workers for what in offered]
    turns = over_requests(bench, names, offered, path, USUAL, **settings)
    bars = turns.bars({f"{WORKER}, all good": 0.9}, f"{WORKER}, 1 in 100 bad")
    yield Section("Texts in protobuf, some bad", HOW_HOSTILE, turns.columns, turns.lines, bars)


def tables(bench: Bench) -> Iterator[Section]:
    """Yields one table."""
    path, loops = save(table_model(), bench.folder, "table"), FORMS["JSON"][1]
    requests = {"": [*map(as_json, table_feeds())]}
    turns = over_requests(bench, bench.contenders(WORKER, *loops), requests, path, USUAL)
    bars = turns.bars({loops[0]: 1.0})
    yield Section("Four inputs of one column, JSON", HOW_TABLES, turns.columns, turns.lines, bars)


def spoiled(requests: Sequence[Request], part: float) -> list[Request]:
    """Returns the requests with a part of them spoiled, at random."""
    bad = np.random.default_rng(0).permutation(len(requests)) < part * len(requests)
    return [
        each._replace(value=SPOILS[at % len(SPOILS)](each.value)) if is_bad else each
        for at, (each, is_bad) in enumerate(zip(requests, bad, strict=True))
    ]


def answered_once(requests: Sequence[Request], right: Mapping[bytes, bytes], job: Job) -> None:
    """Fails unless the worker answers each request once: with the row that is `right` for its value, or an error."""
    topic = fill(job.cluster, CHECKED, [each.value for each in requests], *(each.headers for each in requests))
    for asked, answer in answered(replace(job, requests=[topic]), CHECKED):
        headers, row = dict(answer.headers), right.get(asked)
        assert headers["status"] == (b"ok" if row else b"error"), headers
        assert not row or (answer.value or b"").endswith(row), headers


def text_feeds() -> list[Feeds]:
    """Makes texts of 4 to 256 tokens, 40 on average."""
    rows = word_ids(long_tailed(KINDS), VOCABULARY)
    return [{**padded([row], len(row)), "token_type_ids": np.zeros((1, len(row)), np.int64)} for row in rows]


def text_model() -> bytes:
    """Makes a model of ids, mask and types → 384 floats: the sum of the words that the mask admits, times weights."""
    length = "int64[batch, length]"
    return model(
        f"{length} input_ids, {length} attention_mask, {length} token_type_ids => float[batch, 384] embedding",
        f"""kept = Mul(input_ids, attention_mask)
        typed = Add(kept, token_type_ids)
        total = ReduceSum<keepdims = 1>(typed, last)
        number = Cast<to = {FLOAT}>(total)
        embedding = MatMul(number, weights)""",
        {"last": [1], "weights": np.random.default_rng(0).standard_normal((1, 384)) / 1e5},
    )


def table_feeds() -> list[Feeds]:
    """Makes rows of a text, a whole number and two floats."""
    rng = np.random.default_rng(0)
    columns: Feeds = {
        "city": np.array(CITIES, object)[rng.integers(0, len(CITIES), KINDS)],
        "age": rng.integers(18, 90, KINDS),
        "income": rng.normal(40_000, 9_000, KINDS).round(2).astype(np.float32),
        "balance": rng.normal(0, 900, KINDS).round(2).astype(np.float32),
    }
    return [{name: column[at : at + 1, None] for name, column in columns.items()} for at in range(KINDS)]


def table_model() -> bytes:
    """Makes a model like a pipeline that skl2onnx exports."""
    labels = f"keys_strings = {json.dumps(CITIES)}, values_floats = {[float(at) for at in range(len(CITIES))]}"
    return model(
        "string[batch, 1] city, int64[batch, 1] age, float[batch, 1] income, float[batch, 1] balance "
        "=> int64[batch] label, float[batch, 2] probabilities",
        f"""where = ai.onnx.ml.LabelEncoder<{labels}>(city)
        years = Cast<to = {FLOAT}>(age)
        columns = Concat<axis = 1>(where, years, income, balance)
        scores = MatMul(columns, weights)
        probabilities = Softmax<axis = 1>(scores)
        label = ArgMax<axis = 1, keepdims = 0>(probabilities)""",
        {"weights": np.random.default_rng(0).standard_normal((4, 2)) / 1e4},
    )
