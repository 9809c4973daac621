"""One, two and three lanes: whether the copies of one overlap the kernels of another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from tests.bench.gpu.networks import FP16, FP32, Network
from tests.bench.gpu.nvml import watching
from tests.bench.gpu.results import Line
from tests.bench.gpu.serving import alone, backlog, worked_off, workers
from tests.bench.gpu.sessions import loaded
from tests.bench.gpu.stage import NETWORK, Case, Column, Part, Stage, of
from tests.bench.measuring.ground import response_topic
from tests.builders import request
from tests.fakes import MODEL
from worker.core.records import Batch, ClosedBy
from worker.inference import InferenceLanes

LANES = (1, 2, 3)
# Those that also run from Kafka to Kafka: two bound by the device, with convolutions and without, one by what is around
# it.
WITH_KAFKA = (("ResNet-50", FP16), ("BERT-base", FP16), ("large MLP", FP32))
PATIENCE = 60.0
IN_FLIGHT = 128 << 20  # bytes: the worker wants room for as many batches as may be under way, and one
HOW = """Lanes alone: the worker's inference threads, one more full batch under way than there are lanes.
Worker: from Kafka to Kafka with `BATCHING__LANES` and one more of `BATCHING__MAX_INFLIGHT_BATCHES`."""
COLUMNS = (
    *NETWORK,
    Column("what", "what"),
    Column("lanes", "lanes", "d"),
    Column("rate", "rows/s", ",.0f"),
    Column("gain", "of one lane's", ".2f"),
    Column("busy", "busy, NVML", ".0%"),
)


def cases(stage: Stage) -> Iterator[Case]:
    """Each network's lanes alone, then three of them with Kafka."""
    for network in stage.networks:
        yield Case(of(network, what="lanes alone"), partial(_alone, stage, network))
    for network in stage.networks:
        if (network.name, network.precision) in WITH_KAFKA:
            yield Case(of(network, what="worker"), partial(_worker, stage, network))


def _alone(stage: Stage, network: Network) -> Iterator[Line]:
    model = loaded(stage.model(network), stage.device, network.batch)
    batch = Batch((request(),), network.feeds(network.batch), network.batch, ClosedBy.SIZE)
    first = 0.0
    for lanes in LANES:
        running = InferenceLanes({MODEL: model}, lanes)
        running.probe_each()
        with watching(stage.device) as watch:
            rate = _rate(running, batch, lanes + 1, stage.seconds)
        assert running.close(PATIENCE), "a lane did not end"
        first = first or rate
        yield {"lanes": lanes, "rate": rate, "gain": rate / first, **watch.figures, "missing": watch.why}


def _rate(running: InferenceLanes, batch: Batch, under_way: int, seconds: float) -> float:
    """Rows a second, with so many batches always under way. The first ones do not count."""
    for _ in range(under_way):
        running.submit(batch)
    done, began = -under_way, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds or done < 1:
        newest = running.finished(PATIENCE)
        assert newest, "no batch came back"
        for finished in newest:
            assert finished.outputs is not None, finished.failure
            running.submit(batch)
        done += len(newest)
        if done <= 0:
            began = time.perf_counter()
    return done * batch.rows / took


def _worker(stage: Stage, network: Network) -> Iterator[Line]:
    first = 0.0
    with backlog(stage, network, 2 * alone(stage, network)) as (topic, rows):
        for lanes in LANES:
            settings = {
                "BATCHING__LANES": str(lanes),
                "BATCHING__MAX_INFLIGHT_BATCHES": str(lanes + 1),
                "BATCHING__MAX_INFLIGHT_BYTES": str(IN_FLIGHT),
            }
            job = stage.job(network, [topic], **settings)
            with response_topic(stage.cluster) as responses, workers(job, responses) as contenders:
                flow = worked_off(stage, contenders, responses, rows)
            first = first or flow.rate
            yield {"lanes": lanes, "rate": flow.rate, "gain": flow.rate / first, **flow.seen, "missing": flow.why}


PART = Part("lanes", "On a GPU: lanes", HOW, COLUMNS, cases, limit=240, has_kafka=True)
