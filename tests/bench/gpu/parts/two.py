"""Two workers on one device: whether they share it, or stand in each other's way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.bench.gpu.networks import Network
from tests.bench.gpu.results import Line
from tests.bench.gpu.serving import alone, backlog, ready, worked_off, workers
from tests.bench.gpu.stage import NETWORK, Case, Column, Part, Stage, of
from tests.bench.measuring.ground import response_topic

SHOWN = ("ResNet-50", "BERT-base", "large MLP", "small MLP")
UNTIL_BOTH = 8.0  # seconds from the first answer until the other worker is there, about
HOW = """One worker, then two of one group, at the same backlog, each with two of its four partitions. Counted once all
are ready. MiB are the whole device's."""
COLUMNS = (
    *NETWORK,
    Column("workers", "workers", "d"),
    Column("rate", "results/s", ",.0f"),
    Column("gain", "of one's", ".2f"),
    Column("busy", "busy, NVML", ".0%"),
    Column("used_mib", "MiB in use", ",.0f"),
)


def cases(stage: Stage) -> Iterator[Case]:
    """Four networks: bound by the device, by both, and by what is around it."""
    for network in stage.networks:
        if network.name in SHOWN:
            yield Case(of(network), partial(_network, stage, network))


def _network(stage: Stage, network: Network) -> Iterator[Line]:
    first = 0.0
    with backlog(stage, network, alone(stage, network), UNTIL_BOTH) as (topic, rows):
        for count in (1, 2):
            job = stage.job(network, [topic])
            with response_topic(stage.cluster) as responses, workers(job, responses, count) as contenders:
                for contender in contenders:
                    ready(contender)
                flow = worked_off(stage, contenders, responses, rows)
            first = first or flow.rate
            yield {"workers": count, "rate": flow.rate, "gain": flow.rate / first, **flow.seen, "missing": flow.why}


PART = Part("two", "On a GPU: two workers", HOW, COLUMNS, cases, limit=150, has_kafka=True)
