"""The main job: compares the worker, from Kafka to Kafka, with ONNX Runtime alone and two loops; and its latency."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle

from bench.gpu.device import Watch
from bench.gpu.networks import VOCABULARY, Feeds, Network
from bench.gpu.results import NETWORK, Case, Column, Line, Part, Stage, of
from bench.gpu.serving import Flow, backlog, by_loop, delays, worked_off
from bench.gpu.sessions import answered, loaded, mean_rate
from bench.ground import WORKER, Job, response_topic
from bench.running import running
from tests.ragged import BOUNDARIES, Ids, bucket, long_tailed, padded, texts

LOADS = {"50%": 0.5, "80%": 0.8}  # of the measured rate
LOOPS = ("hand_loop", "one_by_one")
WORKERS = {"worker, one lane": {"BATCHING__LANES": "1"}, "worker, two lanes": {"BATCHING__LANES": "2"}}
RAGGED = 2048  # texts that ONNX Runtime alone runs in turn
HOW = """Alone: ONNX Runtime in one process, the same batch again and again, from the host's memory to the host's;
ragged texts by bucket. The others: a backlog in 4 partitions, from the first answer on. Busy by NVML: at least a kernel
ran. Lane busy: the worker's `inference_seconds`. Energy: of the whole device, for a thousand answers. p50 and p99:
milliseconds from due to read, under a steady load of so much of that rate, 40,000/s at most."""
COLUMNS = (
    *NETWORK,
    Column("contender", "contender"),
    Column("batch", "batch", "d"),
    Column("rate", "results/s", ",.0f"),
    Column("share", "of alone", ".2f"),
    Column("busy", "busy, NVML", ".0%"),
    Column("lane", "lane busy", ".0%"),
    Column("cpu_us", "CPU us each", ".1f"),
    Column("watts", "W", ".0f"),
    Column("joules_each_1000", "J per 1,000", ".3g"),
    Column("p50", "p50, ms", ".1f"),
    Column("p99", "p99, ms", ".1f"),
    Column("late", "publisher late, ms", ".1f"),
)


def cases(stage: Stage) -> Iterator[Case]:
    """Yields each network in turn."""
    for network in stage.networks:
        yield Case(of(network), partial(_network, stage, network))


def _network(stage: Stage, network: Network) -> Iterator[Line]:
    most = alone(stage, network)
    yield _line("alone", network, most, most.rate)
    with backlog(stage, network, most.rate) as (topic, rows):
        for name, settings in WORKERS.items():
            yield from _worker(stage, network, name, stage.job(network, [topic], **settings), rows, most.rate)
        for name in LOOPS:
            yield _line(name, network, by_loop(stage, network, name, topic, rows), most.rate)


def _worker(stage: Stage, network: Network, name: str, job: Job, rows: int, most: float) -> Iterator[Line]:
    with response_topic(stage.cluster) as responses, running(WORKER, job, responses) as contender:
        flow = worked_off(stage, contender, responses, rows)
        yield _line(name, network, flow, most)
        for load, part in LOADS.items():
            waited = delays(stage, contender, network, responses, part * flow.rate)
            yield {"contender": f"{name}, at {load}", **waited}


def alone(stage: Stage, network: Network) -> Flow:
    """Measures ONNX Runtime alone at the worker's batch."""
    model = loaded(stage.model(network), stage.device, network.batch)
    return _repeated(stage, partial(answered, model), _batches(network))


def _repeated(stage: Stage, run: Callable[[Feeds], object], batches: Sequence[tuple[Feeds, int]]) -> Flow:
    """Measures these batches, one after the other, after a first run of each shape."""
    for feeds in {tuple(each.shape for each in feeds.values()): feeds for feeds, _ in batches}.values():
        run(feeds)
    steps = cycle(batches)

    def step() -> int:
        feeds, rows = next(steps)
        run(feeds)
        return rows

    with Watch(stage.device) as watch:
        used = time.process_time()
        rate, rows = mean_rate(step, stage.seconds)
        used = time.process_time() - used
    return Flow(rate, used / rows * 1e6, math.nan, watch.figures, watch.why)


def _batches(network: Network) -> list[tuple[Feeds, int]]:
    if not network.is_ragged:
        return [(network.feeds(network.batch), network.batch)]
    return [
        (padded(rows[at : at + network.batch], boundary), len(rows[at : at + network.batch]))
        for boundary, rows in _by_bucket().items()
        for at in range(0, len(rows), network.batch)
    ]


def _by_bucket() -> dict[int, list[Ids]]:
    found: dict[int, list[Ids]] = {boundary: [] for boundary in BOUNDARIES}
    for row in texts(long_tailed(RAGGED), VOCABULARY):
        found[bucket(len(row))].append(row)
    return found


def _line(contender: str, network: Network, flow: Flow, most: float) -> Line:
    return {
        "contender": contender,
        "batch": 1 if contender == "one_by_one" else network.batch,
        "rate": flow.rate,
        "share": flow.rate / most,
        "lane": None if math.isnan(flow.lane) else flow.lane,
        "cpu_us": flow.cpu_us,
        "joules_each_1000": flow.joules_each_1000,
        **flow.seen,
        "missing": flow.why,
    }


PART = Part("main", "On a GPU: the main job", HOW, COLUMNS, cases, limit=600, has_kafka=True)
