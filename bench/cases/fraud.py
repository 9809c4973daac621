"""Payments as records in JSON and in Avro: the worker, loops by hand, and Quix Streams with the same model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.ground import MAPPINGS, WORKER, Bench
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
        turns = over_requests(
            bench, names, {"": [Request(write(each), []) for each in records]}, path, USUAL, {}, config
        )
        bars = turns.bars({loops[0]: 1.0, loops[1]: 1.0, PEERS[0]: 5.0})
        yield Section(f"Fraud, {name}", HOW, turns.columns, turns.lines, bars)
