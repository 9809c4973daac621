"""What a worker costs around the model, and what Kafka takes: the constants of `profile/engine/costs.py`, measured.

    .venv/bin/python -m tests.bench.overheads [REPEATS]

A worker on the embedded broker serves a model that costs next to nothing. A backlog of single rows, in batches of 1 and
of 64, tells what a request and a batch cost the loop's thread (CPU time, from Linux's `/proc`); a trickle, each request
alone, tells how long a request and its answer are under way. The best of all repeats counts, since other work on the
machine makes these figures worse and never better.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests import models
from tests.bench.measuring.pace import Floats
from tests.builders import request
from tests.fakes import MODEL
from tests.integration.open_loop import Served
from worker.core.records import Array, Batch, ClosedBy
from worker.core.tensors.stacking import Stacker
from worker.inference import InferenceLanes, load
from worker.settings import ModelSettings
from worker.tools.kafka.embedded import EmbeddedBroker
from worker.tools.profile.engine.forecast import poisson
from worker.tools.profile.engine.sweep import Bench, Timing

BACKLOG = 40_000  # a mock partition keeps 5 MB: these are 1 MB in each
TRICKLE, TRICKLE_RATE = 1500, 200.0
ROW = bytes(16)


def main() -> None:
    """Print them."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name, EmbeddedBroker() as broker:
        folder = Path(name)
        model = models.save(models.identity(), folder)
        whole = {rows: min(_loop_cpu(broker, model, rows) for _ in range(repeats)) for rows in (1, 64)}
        own = {rows: _stacking(model, rows) / rows for rows in whole}
        between = min(_between(broker, model) for _ in range(repeats))
        waited = [_trickle(broker, model) for _ in range(repeats)]
    batch = (whole[1] - whole[64]) / (1 - 1 / 64)
    print(f"loop CPU a request, in batches of 1 | 64: {whole[1] * 1e6:.1f} | {whole[64] * 1e6:.1f} µs")  # noqa: T201
    print(f"of which stacking and splitting: {own[1] * 1e6:.1f} | {own[64] * 1e6:.1f} µs")  # noqa: T201
    print(f"so a request {(whole[1] - batch - own[64]) * 1e6:.1f} µs, a batch {(batch - own[1]) * 1e6:.1f} µs")  # noqa: T201
    print(f"a batch of one, each after the other: {between * 1e6:.0f} µs")  # noqa: T201
    print(f"to an idle lane and back: {min(_hand_over() for _ in range(repeats)) * 1e6:.0f} µs")  # noqa: T201
    for percent in (50, 99):
        print(f"under way, p{percent}: {[round(np.percentile(w, percent) * 1000, 2) for w in waited]} ms")  # noqa: T201


def _loop_cpu(broker: EmbeddedBroker, model: Path, rows: int) -> float:
    """Seconds of the loop's thread for each request of a backlog, from when it is ready until all are answered."""
    with Served(broker, model, ROW, {"BATCHING__MAX_BATCH_SIZE": str(rows)}) as served:
        served.worker.wait_until_ready()
        served.latencies(poisson(1000.0, 1000, 1))  # what is done once
        before = _thread_cpu(served.worker.pid)
        served.latencies(np.zeros(BACKLOG))
        return (_thread_cpu(served.worker.pid) - before) / BACKLOG


def _between(broker: EmbeddedBroker, model: Path) -> float:
    """Seconds from one inference to the next, of a backlog in batches of one: of its last half, when all is sent."""
    with Served(broker, model, ROW, {"BATCHING__MAX_BATCH_SIZE": "1"}) as served:
        served.worker.wait_until_ready()
        answered = np.sort(served.latencies(np.zeros(BACKLOG)))[BACKLOG // 2 :]
        return float(answered[-1] - answered[0]) / len(answered)


def _thread_cpu(pid: int) -> float:
    """Seconds that a process's first thread has run so far."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def _stacking(model: Path, rows: int) -> float:
    """Seconds of stacking and splitting one batch, which a sweep measures by itself."""
    loaded = load(ModelSettings(path=model, device="cpu"), max_batch_size=2)
    bench = Bench(loaded, Stacker(loaded.signature), 1, time.perf_counter)
    requests = bench.requests(rows)
    timings = [bench.time(requests) for _ in range(1000)]
    return float(np.median([t.stack + t.split for t in timings if isinstance(t, Timing)]))


def _trickle(broker: EmbeddedBroker, model: Path) -> Floats:
    """Seconds from request to answer when none waits for another."""
    settings = {"BATCHING__MAX_BATCH_SIZE": "1", "BATCHING__LINGER_MS": "0"}
    with Served(broker, model, ROW, settings) as served:
        served.worker.wait_until_ready()
        served.latencies(poisson(TRICKLE_RATE, 200, 1))
        return served.latencies(poisson(TRICKLE_RATE, TRICKLE, 2))


class _Nothing:
    """A model that takes no time."""

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        return ()

    def probe(self) -> Sequence[Array]:
        return ()


def _hand_over() -> float:
    """Median seconds that a batch is on its way to an idle lane and back."""
    lanes = InferenceLanes({MODEL: _Nothing()})
    batch = Batch((request(),), {}, 0, ClosedBy.LINGER)
    waited = []
    for _ in range(500):
        time.sleep(0.001)  # until the lane sleeps
        began = time.perf_counter()
        lanes.submit(batch)
        while not lanes.finished(0.1):
            pass
        waited.append(time.perf_counter() - began)
    lanes.close(1.0)
    return float(np.median(waited))


if __name__ == "__main__":
    main()
