"""Requests of several inputs: texts as an encoder takes them, and rows of a table; models that cost next to nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bench.ground import WORKER, Bench
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


class Form(NamedTuple):
    """An encoding of texts: how a request is written, the loop for it, and the worker's least rate next to the loop."""

    write: Callable[[Feeds], Request]
    loop: str
    least: float


FORMS = {
    "protobuf": Form(as_protobuf, "texts_protobuf", 1.3),
    "JSON": Form(as_json, "texts_json", 1.0),
    "binary data": Form(as_binary, "texts_binary", 1.3),
}
HOW_TEXTS = """Texts of 4 to 256 tokens, 40 on average, as three INT64, keyed, 4 partitions, five buckets, batches
of 64, at least once. The model multiplies, adds, and gives 384 floats: it costs next to nothing."""
HOW_TABLES = """JSON of a text, a whole number and two floats, one column each, batches of 64. The model looks the text
up, and gives a class and two probabilities."""


def texts(bench: Bench) -> Iterator[Section]:
    """Yields a table for each encoding, and one of requests that cannot be read."""
    path, feeds = save(text_model(), bench.folder, "texts"), text_feeds()
    for name, (write, loop, least) in FORMS.items():
        requests = {"": [*map(write, feeds)]}
        names = bench.contenders(WORKER, loop)
        turns = over_requests(bench, names, requests, path, USUAL, BATCHING__BUCKETS=BUCKETS)
        cost = turns.ratio(WORKER, loop, lambda run: run.cpu)
        bars = [*turns.bars({loop: least}), Bar("CPU of a result, worker beside the loop", cost, most=1.0)]
        yield Section(f"Texts in {name}", HOW_TEXTS, turns.columns, turns.lines, bars)
    good = [*map(as_protobuf, feeds)]
    some = [each._replace(value=each.value[: None if at % 101 else -1]) for at, each in enumerate(good)]
    offered = {"all good": good, "1 in 100 bad": some}
    names = [f"{who}, {what}" for who in bench.workers for what in offered]
    turns = over_requests(bench, names, offered, path, USUAL, BATCHING__BUCKETS=BUCKETS)
    bars = turns.bars({f"{WORKER}, all good": 0.9}, f"{WORKER}, 1 in 100 bad")
    yield Section("Texts in protobuf, some cut short", HOW_TEXTS, turns.columns, turns.lines, bars)


def tables(bench: Bench) -> Iterator[Section]:
    """Yields one table."""
    path, loop = save(table_model(), bench.folder, "table"), "table_loop"
    requests = {"": [*map(as_json, table_feeds())]}
    turns = over_requests(bench, bench.contenders(WORKER, loop), requests, path, USUAL)
    bars = turns.bars({loop: 1.0})
    yield Section("Four inputs of one column, JSON", HOW_TABLES, turns.columns, turns.lines, bars)


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
