"""State by key: the worker with and without state, a loop that goes key by key, and Quix Streams with its state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bench.ground import HEADERS, PARTITIONS, WORKER, Bench, Job
from bench.running import KEY_BY_KEY
from bench.tables import Section
from bench.turns import Figure, compared, measure
from tests.kafka.cluster import Sent
from tests.models import gru, save

INPUTS, UNITS, KEYS = 4, 16, 10_000
PLAIN, MEMORY, DISK = "no state", "states in memory", "states on disk"
GUARANTEES = ("at_least_once", "exactly_once")
IN_MEMORY = 1024  # keys in memory, while the others are on disk
HOW = f"""A GRU of {UNITS} units on rows of {INPUTS} floats, batches of 64, {PARTITIONS} partitions, {KEYS:,} keys at
random, {{guarantee}}. `{PLAIN}`: the same network, whose state is always zeros. `{DISK}`: {IN_MEMORY:,} keys are in
memory. The loop reads and writes the state of one key after the other in a dict; Quix Streams keeps them in RocksDB and
a changelog."""


def measured(bench: Bench) -> Iterator[Section]:
    """Yields a table for each guarantee. The other contenders take part only at least once."""
    rows = bench.rows(600_000)
    requests = bench.cluster.create_topic("bench-requests", partitions=PARTITIONS)
    bench.cluster.produce(requests, _requests(rows))
    models = {
        name: save(model, bench.folder, name)
        for name, model in (("gru", gru(INPUTS, UNITS)), ("zeros", without_state(gru(INPUTS, UNITS))))
    }
    for guarantee in GUARANTEES:

        def run(name: str, guarantee: str = guarantee) -> Figure:
            who, _, what = name.partition(", ")
            settings = {"DELIVERY__GUARANTEE": guarantee, **_state(bench, what)}
            job = Job(bench.cluster, [requests], models["zeros" if what == PLAIN else "gru"], 64, settings)
            return measure(who, job, rows, bench.asked.seconds)

        names = [f"{who}, {what}" for who in bench.workers for what in (PLAIN, MEMORY, DISK)]
        names += [KEY_BY_KEY, "quix_state"] if guarantee == GUARANTEES[0] else []
        turns = compared(bench, names, run)
        how = HOW.format(guarantee=guarantee.replace("_", " "))
        bars = turns.bars({f"{WORKER}, {PLAIN}": 0.75}, f"{WORKER}, {MEMORY}")
        yield Section(f"State by key, {guarantee.replace('_', ' ')}", how, turns.columns, turns.lines, bars)
    bench.cluster.delete_topic(requests)


def _requests(rows: int) -> Iterator[Sent]:
    rng = np.random.default_rng(0)
    drawn = zip(rng.integers(0, KEYS, rows), rng.standard_normal((rows, INPUTS)).astype("<f4"), strict=True)
    return (Sent(b"key-%d" % key, value.tobytes(), HEADERS) for key, value in drawn)


def _state(bench: Bench, what: str) -> dict[str, str]:
    """Returns the settings of a worker with state. Each run has its own changelog, and its own directory."""
    if what not in (MEMORY, DISK):
        return {}
    changelog = bench.cluster.create_topic("states", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
    found = {"STATE__TENSORS": '{"h_in": "h_out"}', "KAFKA__CHANGELOG_TOPIC": changelog}
    if what == DISK:
        found |= {"STATE__DIRECTORY": str(bench.folder / changelog), "STATE__KEYS_IN_MEMORY": str(IN_MEMORY)}
    return found


def without_state(model: bytes) -> bytes:
    """Returns the network with a state that is always zero. An inference costs as much as with state."""
    made = onnx.load_from_string(model)
    graph = made.graph
    graph.input.remove(next(value for value in graph.input if value.name == "h_in"))
    graph.output.remove(next(value for value in graph.output if value.name == "h_out"))
    graph.initializer.append(numpy_helper.from_array(np.zeros((INPUTS, UNITS), np.float32), "zeros"))
    graph.node.insert(0, helper.make_node("MatMul", ["x", "zeros"], ["h_in"]))
    return bytes(made.SerializeToString())
