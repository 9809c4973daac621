"""JPEGs through a ResNet-18: the worker, and loops by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import orjson

from bench.answers import answered
from bench.ground import MAPPINGS, WORKER, Bench, Job, fill
from bench.loops import records
from bench.loops.task import Task
from bench.tables import Section
from bench.turns import compared, measure
from tests.models import save
from tests.photos import photos
from tests.residual import resnet18

KINDS = 200  # different pictures
USUAL = 2_000
CHECKED, NEAR = 64, 1e-4  # pictures whose answers are compared with those of a loop; how near scores must be
BATCH = 16
SECONDS = 20.0  # of a run: a batch takes half a second
LOOPS = ("hand_pictures", "plain_pictures")
HOW = f"""JPEGs of 640 x 480, 65 KB, keyed, 4 partitions, batches of {BATCH}, at least once. They are scaled to a
shortest edge of 256, their middle of 224 x 224 is cut out and normalised. The model is a ResNet-18 (random weights).
The answer has the most likely class, and its probability."""


def measured(bench: Bench) -> Iterator[Section]:
    """Yields one table."""
    rows, seconds, values = bench.rows(USUAL), max(SECONDS, bench.asked.seconds), [*photos(KINDS)]
    model, names = save(resnet18(), bench.folder, "resnet18"), bench.contenders(WORKER, *LOOPS)
    job = Job(bench.cluster, [], model, BATCH, config=MAPPINGS / "pictures.toml")
    notes = [_right(values[:CHECKED], job)] if WORKER in names else []
    topic = fill(bench.cluster, rows, values, [])
    turns = compared(bench, names, lambda name: measure(name, replace(job, requests=[topic]), rows, seconds))
    bench.cluster.delete_topic(topic)
    bars = turns.bars(dict.fromkeys(LOOPS, 1.0))
    yield Section(f"Pictures, batch {BATCH}", HOW, turns.columns, turns.lines, bars, notes)


def _right(values: Sequence[bytes], job: Job) -> str:
    """Fails unless each answer is the loop's for that picture alone. Returns the largest difference of scores."""
    alone = records.pictures(Task("", "", "", "", str(job.model), 1)).answers
    topic, furthest = fill(job.cluster, len(values), values, []), 0.0
    for asked, answer in answered(replace(job, requests=[topic]), len(values)):
        ((expected, _),) = alone([asked])
        (found, right) = (orjson.loads(each or b"") for each in (answer.value, expected))
        assert found["label"] == right["label"], (found, right)
        furthest = max(furthest, abs(found["score"] - right["score"]))
    assert furthest < NEAR, furthest
    return f"{len(values)} labels are those of Pillow and the model outside, and scores to {furthest:.0e}"
