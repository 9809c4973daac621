"""Payments as records in JSON and in Avro: the worker, loops by hand, and Quix Streams with the same model."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import fastavro
import numpy as np
import orjson
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from bench.answers import answered
from bench.ground import MAPPINGS, WORKER, Bench, Job, fill
from bench.loops.task import opened
from bench.tables import Section
from bench.turns import compared, measure
from tests.kafka.apicurio import Apicurio
from tests.models import save
from tests.payments import CLASSES, FLOATS, SCHEMA, Payment, as_avro, as_json, columns, payments
from tests.records_models import fraud, pipeline, table

KINDS = 10_000  # different payments
USUAL = 400_000
NEAR = 1e-5
HOW = """Payments of 530 bytes of JSON, or 260 of Avro, keyed, 4 partitions, batches of 64, at least once. The model is
a scikit-learn pipeline of one-hot texts and 100 boosted trees, converted by skl2onnx, with an input for each of 12
fields, some of which are missing. The answer has the payment's number, the score and the label."""
LOOPS = ("hand_fraud", "plain_fraud", "swift_fraud")
PEERS = ("quix_fraud", "quix_fraud_sink")


class Form(NamedTuple):
    """How payments are written and answers read, the settings of the worker for it, and a step for each new topic."""

    write: Callable[[Payment], bytes]
    read: Callable[[bytes], Any]
    settings: dict[str, str]
    prepare: Callable[[str], object]


def measured(bench: Bench) -> Iterator[Section]:
    """Yields a table for each encoding."""
    yield _compared(bench, "JSON", Form(as_json, orjson.loads, {}, nullcontext), PEERS)
    with Apicurio() as registry:
        yield _compared(bench, "Avro", in_avro(registry.url), ())


def in_avro(url: str) -> Form:
    """Returns the form for Avro, with the schema in this registry under the name of each topic."""
    client, schema = SchemaRegistryClient({"url": url}), Schema(json.dumps(SCHEMA), "AVRO")
    number = client.register_schema("payments", schema)
    known: dict[int, Any] = {}

    def read(value: bytes) -> Any:
        answers = int.from_bytes(value[1:5], "big")
        if answers not in known:
            known[answers] = fastavro.parse_schema(json.loads(client.get_schema(answers).schema_str or ""))
        found: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), known[answers])
        return {name: field for name, field in found.items() if field is not None}

    settings = {"RECORDS__ENCODING": "registry", "REGISTRY__URL": url}
    return Form(
        lambda payment: as_avro(payment, number),
        read,
        settings,
        lambda topic: client.register_schema(f"{topic}-value", schema),
    )


def _compared(bench: Bench, name: str, form: Form, peers: Sequence[str]) -> Section:
    rows, records = bench.rows(USUAL), payments(KINDS)
    values, loops = [*map(form.write, records)], [f"{loop}_{name.lower()}" for loop in LOOPS]
    job = Job(bench.cluster, [], save(fraud(), bench.folder, "fraud"), 64, form.settings, MAPPINGS / "fraud.toml")

    def filled(count: int) -> Job:
        topic = fill(bench.cluster, count, values, [])
        form.prepare(topic)
        return replace(job, requests=[topic])

    names = bench.contenders(WORKER, *loops, *peers)
    notes = [_right(dict(zip(values, records, strict=True)), form, filled(KINDS))] if WORKER in names else []
    many = filled(rows)
    turns = compared(bench, names, lambda name: measure(name, many, rows, bench.asked.seconds))
    bench.cluster.delete_topic(*many.requests)
    bars = turns.bars({loops[0]: 1.0, loops[1]: 1.0, PEERS[0]: 5.0})
    return Section(f"Fraud, {name}", HOW, turns.columns, turns.lines, bars, notes)


def _right(asked: dict[bytes, Payment], form: Form, job: Job) -> str:
    """Fails unless each answer is ONNX Runtime's to the last bit. Returns how scikit-learn's differ."""
    pairs = [(asked[value], form.read(answer.value or b"")) for value, answer in answered(job, KINDS)]
    payments = [payment for payment, _ in pairs]
    labels, probabilities = opened(str(job.model)).run(["label", "probabilities"], columns(payments))
    expected = [
        {"payment_id": payment["payment_id"], "score": float(score), "label": CLASSES[label]}
        for payment, score, label in zip(payments, probabilities[:, 1], labels, strict=True)
    ]
    found = [{**answer, "score": float(np.float32(answer["score"]))} for _, answer in pairs]
    assert found == expected, next(pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1])
    wide = {name: np.array([each.get(name) for each in payments], float)[:, None] for name in FLOATS}
    off = np.abs(pipeline().predict_proba(table(columns(payments) | wide))[:, 1] - probabilities[:, 1])
    return f"""{KINDS:,} answers are ONNX Runtime's to the last bit; of scikit-learn's, which compares FP64 with its \
thresholds, {(off > NEAR).sum()} differ by more than {NEAR:g}"""
