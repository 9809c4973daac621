"""Documents in JSON to embeddings by a MiniLM: the worker with the model's folder, and loops by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import orjson

from bench.answers import answered
from bench.ground import MAPPINGS, WORKER, Bench, Job, fill
from bench.loops import records
from bench.loops.task import Task
from bench.minilm import PACKAGE, minilm, why_absent
from bench.tables import Section
from bench.turns import compared, measure

KINDS = 1000  # different documents
USUAL = 2_000
CHECKED, NEAR = 200, 1e-5  # documents whose answers are compared with those of a loop; how near they must be
SECONDS = 40.0  # of a run: a batch takes seconds
MEAN, SPREAD = 30, 0.8  # of a text's words, and of their logarithm
LEAST, MOST = 3, 198  # words; a text has two tokens more
LOOPS = ("hand_documents", "plain_documents", "swift_documents")
HOW = """JSON documents of 5 to 200 tokens, 32 on average, keyed, 4 partitions, batches of 64, at least once. The model
is all-MiniLM-L6-v2 (6 layers, 384 wide). The answer has the document's number and the embedding, 384 floats."""


def measured(bench: Bench) -> Iterator[Section]:
    """Yields one table, or none if the model is not installed."""
    if why := why_absent():
        bench.tell(f"documents: {why}")
        return
    rows, seconds, values = bench.rows(USUAL), max(SECONDS, bench.asked.seconds), documents(KINDS)
    path, names = minilm(bench.folder / "minilm"), bench.contenders(WORKER, *LOOPS)
    settings = {"MODEL__PATH": str(path.parents[1])}
    job = Job(bench.cluster, [], path, 64, settings, MAPPINGS / "documents.toml")
    notes = [_right(values[:CHECKED], job)] if WORKER in names else []
    topic = fill(bench.cluster, rows, values, [])
    turns = compared(bench, names, lambda name: measure(name, replace(job, requests=[topic]), rows, seconds))
    bench.cluster.delete_topic(topic)
    bars = turns.bars({LOOPS[0]: 1.0, LOOPS[1]: 1.0})
    yield Section("Documents, batch 64", HOW, turns.columns, turns.lines, bars, notes)


def _right(values: Sequence[bytes], job: Job) -> str:
    """Fails unless each embedding is the loop's for that document alone. Returns the largest difference."""
    alone = records.documents(Task("", "", "", "", str(job.model), 1)).answers
    topic, furthest = fill(job.cluster, len(values), values, []), 0.0
    for asked, answer in answered(replace(job, requests=[topic]), len(values)):
        ((expected, _),) = alone([orjson.loads(asked)])
        (found, right) = (orjson.loads(each or b"") for each in (answer.value, expected))
        assert found.keys() == right.keys(), found.keys() ^ right.keys()
        assert found["id"] == right["id"], found["id"]
        furthest = max(furthest, np.abs(np.subtract(found["embedding"], right["embedding"])).max())
    assert furthest < NEAR, furthest
    return f"{len(values)} embeddings are those of tokenizer, model and pooling outside, to {furthest:.0e}"


def documents(count: int, seed: int = 5) -> list[bytes]:
    """Makes documents, whose bodies are words of the model's vocabulary at random."""
    rng = np.random.default_rng(seed)
    known = [word for word in (PACKAGE / "vocab.txt").read_text().split() if word.isalpha() and len(word) > 2]
    lengths = np.clip(rng.lognormal(np.log(MEAN) - SPREAD**2 / 2, SPREAD, count).astype(int), LEAST, MOST)
    return [_document(at, [*rng.choice(known, length)]) for at, length in enumerate(lengths)]


def _document(number: int, words: list[str]) -> bytes:
    fields = {
        "id": number,
        "title": " ".join(words[:3]).title(),
        "body": " ".join(words).capitalize(),
        "language": "en",
        "url": f"http://news.example/{number}",
        "tags": words[:2],
    }
    return orjson.dumps(fields)
