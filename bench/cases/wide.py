"""Records of many fields, each of which is an input of the model: the worker beside loops by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson

from bench.answers import answered
from bench.ground import MAPPINGS, WORKER, Bench, Job, fill
from bench.loops import records
from bench.loops.task import Task
from bench.tables import Section
from bench.turns import compared, measure
from tests.models import save
from tests.records_models import wide

KINDS = 500  # different records
USUAL = {50: 100_000, 500: 15_000}  # records of a run, by their fields
LOOPS = ("hand_wide_json", "plain_wide_json")
HOW = """JSON records of {} floats and a text, keyed, 4 partitions, batches of 64, at least once. The model is a
scikit-learn pipeline of a scaler and 20 boosted trees, converted by skl2onnx, with an input for each float. The answer
has the record's text and the score."""


def measured(bench: Bench) -> Iterator[Section]:
    """Yields a table for each number of fields."""
    for fields, usual in USUAL.items():
        yield _compared(bench, fields, usual)


def _compared(bench: Bench, fields: int, usual: int) -> Section:
    rows, values, names = bench.rows(usual), written(fields), bench.contenders(WORKER, *LOOPS)
    path = save(wide(fields), bench.folder, f"wide-{fields}")
    job = Job(bench.cluster, [], path, 64, {}, MAPPINGS / "wide.toml")
    notes = [_right(values, path, job)] if WORKER in names else []
    many = replace(job, requests=[fill(bench.cluster, rows, values, [])])
    turns = compared(bench, names, lambda name: measure(name, many, rows, bench.asked.seconds))
    bench.cluster.delete_topic(*many.requests)
    bars = turns.bars({LOOPS[0]: 1.0, LOOPS[1]: 1.0})
    return Section(f"Records of {fields} fields", HOW.format(fields), turns.columns, turns.lines, bars, notes)


def _right(values: Sequence[bytes], path: Path, job: Job) -> str:
    """Fails unless each answer is that of a loop for this record alone."""
    alone = records.wide(Task("", "", "", "", str(path), 1)).answers
    topic = fill(job.cluster, len(values), values, [])
    for asked, answer in answered(replace(job, requests=[topic]), len(values)):
        ((expected, _),) = alone([orjson.loads(asked)])
        assert orjson.loads(answer.value or b"") == orjson.loads(expected), asked[:20]
    return f"{len(values)} answers are ONNX Runtime's to the last bit"


def written(fields: int) -> list[bytes]:
    """Makes records with a text and so many floats."""
    numbers = np.random.default_rng(3).standard_normal((KINDS, fields)).round(3).tolist()
    return [
        orjson.dumps({"id": f"r{at}"} | {f"f{field}": number for field, number in enumerate(row)})
        for at, row in enumerate(numbers)
    ]
