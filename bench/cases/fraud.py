"""Payments as records in JSON and in Avro: the worker, loops by hand, and Quix Streams with the same model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import orjson

from bench.answers import answered
from bench.ground import MAPPINGS, WORKER, Bench, Job
from bench.loops.task import opened
from bench.requests import Request
from bench.tables import Section
from bench.turns import over_requests
from tests.models import save
from tests.payments import CLASSES, FLOATS, Payment, as_avro, as_json, columns, payments
from tests.records_models import fraud, pipeline, table

KINDS = 10_000  # different payments
USUAL = 400_000
NEAR = 1e-5
HOW = """Payments of 530 bytes of JSON, or 260 of Avro, keyed, 4 partitions, batches of 64, at least once. The model is
a scikit-learn pipeline of one-hot texts and 100 boosted trees, converted by skl2onnx, with an input for each of 12
fields, some of which are missing. The answer has the payment's number, the score and the label."""
LOOPS = ("hand_fraud", "plain_fraud", "swift_fraud")
PEERS = ("quix_fraud", "quix_fraud_sink")


def measured(bench: Bench) -> Iterator[Section]:
    """Yields a table for each encoding."""
    path, records = save(fraud(), bench.folder, "fraud"), payments(KINDS)
    config = MAPPINGS / "fraud.toml"
    offered: dict[str, Callable[[Any], bytes]] = {"JSON": as_json, "Avro": as_avro}
    for name, write in offered.items():
        loops = [f"{loop}_{name.lower()}" for loop in LOOPS]
        names = bench.contenders(*([WORKER, *loops, *PEERS] if name == "JSON" else loops))
        requests = [Request(write(each), []) for each in records]
        job = Job(bench.cluster, [], path, 64, config=config)
        notes = [_right(requests, records, job)] if WORKER in names else []
        turns = over_requests(bench, names, {"": requests}, path, USUAL, {}, config)
        bars = turns.bars({loops[0]: 1.0, loops[1]: 1.0, PEERS[0]: 5.0})
        yield Section(f"Fraud, {name}", HOW, turns.columns, turns.lines, bars, notes)


def _right(requests: Sequence[Request], records: Sequence[Payment], job: Job) -> str:
    """Fails unless each answer is ONNX Runtime's to the last bit. Returns how scikit-learn's differ."""
    asked = dict(zip([each.value for each in requests], records, strict=True))
    pairs = [(asked[value], orjson.loads(answer.value or b"")) for value, answer in answered(requests, KINDS, job)]
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
