"""Texts of all lengths and a transformer: what buckets are worth, beside padding in the order of arrival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.bench.loops.alone import PLANS, VOCABULARY, alone, ragged_texts
from tests.bench.measuring.bench import Bench
from tests.bench.measuring.ground import PARTITIONS, Job, fill, response_topic, wait_for
from tests.bench.measuring.results import Bar, Section
from tests.bench.measuring.running import WORKER, running
from tests.bench.measuring.throughput import Figure, compared, measure
from tests.kafka.checker import Answer, answer, judge
from tests.kafka.cluster import Sent
from tests.kafka.publisher import Acknowledged, publish
from tests.models import encoder, save
from tests.ragged import BOUNDARIES, BUCKETS, MOST, PROTOBUF, TOLERANCE, Alone, as_request, bucket, fault, row_of

BATCH = 32
EXACT = f"{WORKER} without buckets"
OFFLINE_BUCKETS, OFFLINE_PADDED = PLANS
LOOP = "padding_loop"
SETTINGS = {"BATCHING__BUCKETS": BUCKETS}
CHECKED = 3000  # requests whose answers are compared, each with its own run
# The worker's metrics by bucket.
BATCHES, ROWS = "inference_worker_bucket_batches_total", "inference_worker_bucket_rows_total"
ELEMENTS, DATA, PADDING = "inference_worker_elements_total", "data", "padding"
COLUMNS = ("bucket", "requests", "batches", "fill", "padding")
MODEL = f"""a transformer of 4 layers, 192 wide (1 ms for 40 tokens, one thread), lengths lognormal with a mean of 40
between 4 and {MOST}, protobuf, batches of {BATCH}, buckets {"/".join(map(str, BOUNDARIES))}"""
HOW = f"""Texts: {MODEL}, 4 partitions.
`{OFFLINE_BUCKETS}` and `{OFFLINE_PADDED}` are ONNX Runtime alone over the same rows in the same order: in full batches
of each bucket, and as they come, padded to the longest of each batch. `{LOOP}` does the latter from Kafka to Kafka.
Without buckets only equal lengths share a batch."""
HOW_CHECKED = f"""Texts: {MODEL}. Every answer is compared with its request's
own run, unpadded; fill and padding are what the worker's metrics say."""


class Filled(NamedTuple):
    """One bucket, by the worker's metrics."""

    batches: float
    rows: float
    data: float
    padding: float

    @property
    def fill(self) -> float:
        """How full its batches were, as a part of the most."""
        return self.rows / self.batches / BATCH

    @property
    def waste(self) -> float:
        """The part of their elements that was padding."""
        return self.padding / (self.data + self.padding)


def measured(bench: Bench) -> Iterator[Section]:
    """How fast, and whether it is right."""
    yield speed(bench)
    if bench.contenders(WORKER):
        yield answers(bench)


def speed(bench: Bench) -> Section:
    """The worker beside padding, and beside ONNX Runtime alone."""
    rows = bench.rows(12_000)
    requests = fill(bench.cluster, rows, [as_request(row) for row in ragged_texts(rows)], [PROTOBUF])
    job = Job(bench.cluster, [requests], _model(bench), BATCH, SETTINGS)

    def run(name: str) -> Figure:
        if name in PLANS:
            return alone(name, job.model, BATCH, bench.asked.seconds, rows)
        if name == EXACT:
            return measure(WORKER, replace(job, settings={}), rows, bench.asked.seconds)
        return measure(name, job, rows, bench.asked.seconds)

    turns = compared(bench, bench.contenders(WORKER, OFFLINE_BUCKETS, OFFLINE_PADDED, LOOP, EXACT), run)
    bench.cluster.delete_topic(requests)
    bars = turns.bars({OFFLINE_BUCKETS: 0.85, OFFLINE_PADDED: 2.5, LOOP: 2.5})
    return Section("Texts of all lengths", HOW, turns.columns, turns.lines, bars)


def answers(bench: Bench) -> Section:
    """One run over requests that are remembered: their answers, and what the metrics say of the buckets."""
    cluster, texts = bench.cluster, ragged_texts(min(CHECKED, bench.rows(CHECKED)))
    requests = cluster.create_topic("bench-requests", partitions=PARTITIONS)
    asked = publish(
        cluster, requests, (Sent(b"key-%d" % (at % 997), as_request(row), [PROTOBUF]) for at, row in enumerate(texts))
    )
    job = Job(cluster, [requests], _model(bench), BATCH, SETTINGS)
    with response_topic(cluster) as responses, running(WORKER, job, responses) as contender:
        wait_for(cluster, responses, len(texts), contender.why_dead)
        found = [answer(record) for record in cluster.read_all(responses)]
        assert contender.replica is not None
        contender.replica.wait_until_settled(len(texts))
        filled = by_bucket(contender.replica.metrics_page())
    cluster.delete_topic(requests)
    lengths = [len(text) for text in texts]
    bars = [*bars_of_answers(found, asked, Alone(job.model)), *bars_of_buckets(filled, lengths)]
    return Section("Texts of all lengths, by bucket", HOW_CHECKED, COLUMNS, _lines(filled), bars)


def by_bucket(page: str) -> dict[int, Filled]:
    """What a worker has run so far, by its `/metrics`. Fails where nothing is counted by bucket."""
    found: dict[int, dict[str, float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if "bucket" in sample.labels and sample.name in (BATCHES, ROWS, ELEMENTS):
                kind = sample.labels.get("kind", sample.name)
                found.setdefault(int(sample.labels["bucket"]), {})[kind] = sample.value
    assert found, f"no metrics {BATCHES}, {ROWS}, {ELEMENTS}"
    return {
        boundary: Filled(each[BATCHES], each[ROWS], each[DATA], each[PADDING])
        for boundary, each in sorted(found.items())
        if each[BATCHES]
    }


def bars_of_answers(found: Sequence[Answer], asked: Acknowledged, alone: Alone) -> list[Bar]:
    """Each beside its request's own run, and all of them beside what was asked."""
    verdict = judge(found, asked)
    results = [(each.value or b"", asked[each.source].value or b"") for each in found if each.source in asked]
    wrong = [why for result, request in results if (why := fault(result, alone.one(row_of(request))))]
    astray = len(verdict.lost) + len(verdict.disordered) + len(verdict.unasked) + verdict.repeats
    return [
        Bar(
            f"of {len(asked):,} answers, those that are not their request's own within {TOLERANCE:g}",
            len(wrong),
            most=0,
        ),
        Bar("answers that are lost, repeated, or out of their partition's order", astray, most=0),
    ]


def bars_of_buckets(filled: Mapping[int, Filled], lengths: Sequence[int]) -> list[Bar]:
    """What the metrics say beside what follows from the lengths."""
    wanted = Counter(map(bucket, lengths))
    astray = sum(abs(wanted[each] - (filled[each].rows if each in filled else 0)) for each in BOUNDARIES)
    held = sum(map(bucket, lengths))
    expected = (held - sum(lengths)) / held
    return [
        Bar("rows that the metrics count in another bucket than that of their length", astray, most=0),
        Bar(
            f"how far padding by the metrics is from the {expected:.1%} of these lengths, as a part of it",
            abs(_all_of(filled).waste / expected - 1),
            most=0.01,
        ),
    ]


def _lines(filled: Mapping[int, Filled]) -> list[list[str]]:
    named = {**{str(boundary): each for boundary, each in filled.items()}, "all": _all_of(filled)}
    return [
        [name, f"{each.rows:,.0f}", f"{each.batches:,.0f}", f"{each.fill:.0%}", f"{each.waste:.0%}"]
        for name, each in named.items()
    ]


def _all_of(filled: Mapping[int, Filled]) -> Filled:
    return Filled(*map(sum, zip(*filled.values(), strict=True)))


def _model(bench: Bench) -> Path:
    return save(encoder(4, 192, 4, VOCABULARY, MOST), bench.folder, "encoder")
