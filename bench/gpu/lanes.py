"""One, two and three lanes: whether the copies of one overlap the kernels of another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from bench.gpu.device import watching
from bench.gpu.networks import Network
from bench.gpu.results import NETWORK, Case, Column, Line, Part, Stage, of
from bench.gpu.sessions import loaded
from tests.builders import request
from tests.fakes import MODEL
from worker.core.records import Batch, ClosedBy
from worker.inference import InferenceLanes

LANES = (1, 2, 3)
PATIENCE = 60.0
HOW = """The worker's inference threads without Kafka, one more full batch under way than there are lanes."""
COLUMNS = (
    *NETWORK,
    Column("lanes", "lanes", "d"),
    Column("rate", "rows/s", ",.0f"),
    Column("gain", "of one lane's", ".2f"),
    Column("busy", "busy, NVML", ".0%"),
)


def cases(stage: Stage) -> Iterator[Case]:
    """Each network in turn."""
    for network in stage.networks:
        yield Case(of(network), partial(_network, stage, network))


def _network(stage: Stage, network: Network) -> Iterator[Line]:
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


PART = Part("lanes", "On a GPU: lanes", HOW, COLUMNS, cases, limit=120)
