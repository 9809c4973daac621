"""JPEGs through a ResNet-18: the worker, and loops by hand."""

from __future__ import annotations

from collections.abc import Iterator

from bench.ground import Bench, Job, fill
from bench.tables import Section
from bench.turns import compared, measure
from tests.models import save
from tests.photos import photos
from tests.residual import resnet18

KINDS = 200  # different pictures
USUAL = 2_000
BATCH = 16
SECONDS = 20.0  # of a run: a batch takes half a second
NAMES = ("hand_pictures", "plain_pictures")
HOW = f"""JPEGs of 640 x 480, 65 KB, keyed, 4 partitions, batches of {BATCH}, at least once. They are scaled to a
shortest edge of 256, their middle of 224 x 224 is cut out and normalised. The model is a ResNet-18 (random weights).
The answer has the most likely class, and its probability."""


def measured(bench: Bench) -> Iterator[Section]:
    """Yields one table."""
    rows, seconds = bench.rows(USUAL), max(SECONDS, bench.asked.seconds)
    requests = fill(bench.cluster, rows, [*photos(KINDS)], [])
    job = Job(bench.cluster, [requests], save(resnet18(), bench.folder, "resnet18"), BATCH)
    turns = compared(bench, bench.contenders(*NAMES), lambda name: measure(name, job, rows, seconds))
    bench.cluster.delete_topic(requests)
    yield Section(f"Pictures, batch {BATCH}", HOW, turns.columns, turns.lines)
