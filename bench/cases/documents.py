"""Documents in JSON to embeddings by a MiniLM: the worker with the model's folder, and loops by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import orjson

from bench.ground import Bench
from bench.minilm import PACKAGE, minilm, why_absent
from bench.requests import Request
from bench.tables import Section
from bench.turns import over_requests

KINDS = 1000  # different documents
USUAL = 2_000
SECONDS = 40.0  # of a run: a batch takes seconds
MEAN, SPREAD = 30, 0.8  # of a text's words, and of their logarithm
LEAST, MOST = 3, 198  # words; a text has two tokens more
NAMES = ("hand_documents", "plain_documents", "swift_documents")
HOW = """JSON documents of 5 to 200 tokens, 32 on average, keyed, 4 partitions, batches of 64, at least once. The model
is all-MiniLM-L6-v2 (6 layers, 384 wide). The answer has the document's number and the embedding, 384 floats."""


def measured(bench: Bench) -> Iterator[Section]:
    """Yields one table, or none if the model is not installed."""
    if why := why_absent():
        bench.tell(f"documents: {why}")
        return
    path, requests = minilm(bench.folder / "minilm"), {"": [Request(each, []) for each in documents(KINDS)]}
    patient = replace(bench, asked=bench.asked._replace(seconds=max(SECONDS, bench.asked.seconds)))
    turns = over_requests(patient, bench.contenders(*NAMES), requests, path, USUAL)
    yield Section("Documents, batch 64", HOW, turns.columns, turns.lines)


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
