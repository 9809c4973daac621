"""Payments as records in JSON and in Avro: the worker, loops by hand, and Quix Streams with the same model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.ground import Bench
from bench.requests import Request
from bench.tables import Section
from bench.turns import over_requests
from tests.models import save
from tests.records_models import as_avro, as_json, fraud, payments

KINDS = 10_000  # different payments
USUAL = 400_000
HOW = """Payments of 530 bytes of JSON, or 260 of Avro, keyed, 4 partitions, batches of 64, at least once. The model is
a scikit-learn pipeline of one-hot texts and 100 boosted trees, converted by skl2onnx, with an input for each of 12
fields, some of which are missing. The answer has the payment's number, the score and the label."""
FORMS: dict[str, tuple[Callable[[Any], bytes], tuple[str, ...]]] = {
    "JSON": (as_json, ("hand_fraud_json", "plain_fraud_json", "swift_fraud_json", "quix_fraud", "quix_fraud_sink")),
    "Avro": (as_avro, ("hand_fraud_avro", "plain_fraud_avro", "swift_fraud_avro")),
}


def measured(bench: Bench) -> Iterator[Section]:
    """Yields a table for each encoding."""
    path, records = save(fraud(), bench.folder, "fraud"), payments(KINDS)
    for name, (write, loops) in FORMS.items():
        requests = {"": [Request(write(each), []) for each in records]}
        turns = over_requests(bench, bench.contenders(*loops), requests, path, USUAL)
        yield Section(f"Fraud, {name}", HOW, turns.columns, turns.lines)
