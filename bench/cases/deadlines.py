"""Twice the load that the worker can serve, with deadlines and without: how many answers still come in time?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.ground import HEADERS, OUTPUTS, WIDTH, WORKER, Bench, Headers, Job, there
from bench.pace import Load, answering, steady
from bench.running import Running
from bench.tables import Bar, Section
from tests.models import save, tied_mlp
from worker.tools.bench.figures import Heard, Sent

# An expensive model, so that publisher, reader and broker take little from the lane even at twice the capacity. At
# 5,500 requests a second they took half of two cores, and an inference took twice its time alone (measured 2026).
LAYERS, LAYER_WIDTH = 40, 2048
BATCH = 16
TIMEOUT_MS = 500
TIMEOUT = TIMEOUT_MS / 1000  # seconds
TIMES = 2  # the load, as a multiple of the capacity
WARM_UP = 2.0  # seconds of the load that are not counted
EXCEEDED = "DEADLINE_EXCEEDED"
PATIENT = "no deadlines"
HEADERS_OF: dict[str, Headers] = {
    f"timeout-ms {TIMEOUT_MS}": [*HEADERS, ("timeout-ms", b"%d" % TIMEOUT_MS)],
    PATIENT: HEADERS,
}
COLUMNS = ("", "asked/s", "results/s", "in time/s", "of capacity", "refused/s", "p50 ms", "p99")
HOW = f"""Rows of 256 float32, an MLP of {LAYERS} layers of {LAYER_WIDTH} that share one weight, batches of {BATCH},
4 partitions. The capacity is that of a closed loop; then an open loop asks {TIMES} times as often, and each request has
{TIMEOUT_MS} ms from the instant it is due. In time is a result that is read by then; p50 and p99 are of results."""


class Served(NamedTuple):
    """The figures of one load: answers per second during it, waits of results (ms), and rows run without a result."""

    asked: float
    results: float
    in_time: float
    refused: float
    p50: float
    p99: float
    wasted: float


class Round(NamedTuple):
    """The capacity of one worker, in answers per second, and its figures for each load."""

    capacity: float
    served: Sequence[Served]


def measured(bench: Bench) -> Iterator[Section]:
    """Yields one table."""
    with ExitStack() as stack:
        servers = bench.cluster.bootstrap_servers
        loads = {name: stack.enter_context(Load.of_rows(servers, headers)) for name, headers in HEADERS_OF.items()}
        rounds = [_round(bench, loads, is_reversed=bool(at % 2)) for at in range(bench.asked.rounds)]
    capacity = statistics.median(each.capacity for each in rounds)
    lines = [_line(name, rounds, at) for at, name in enumerate(HEADERS_OF)]
    yield Section(f"Twice the load of {capacity:,.0f}/s at most", HOW, COLUMNS, lines, _bars(rounds))


def _round(bench: Bench, loads: Mapping[str, Load], *, is_reversed: bool) -> Round:
    """Measures one worker: its capacity, then each load once the previous one is answered. The order alternates."""
    model = save(tied_mlp(WIDTH, LAYER_WIDTH, LAYERS, OUTPUTS), bench.folder, "dear")
    job = Job(bench.cluster, [], model, BATCH)
    with answering(WORKER, job, *loads.values()) as contender:
        capacity = loads[PATIENT].most(bench.asked.seconds)
        bench.tell(f"capacity: {capacity:,.0f}/s")
        names = list(loads)[:: -1 if is_reversed else 1]
        found = {name: _load(bench, contender, capacity, loads[name]) for name in names}
    return Round(capacity, [found[name] for name in loads])


def _load(bench: Bench, worker: Running, capacity: float, load: Load) -> Served:
    rate, seconds = round(capacity * TIMES), WARM_UP + bench.asked.seconds
    before = _rows_run(worker)
    dues = steady(rate, seconds)
    sent, heard = load.run(dues, worker.check)
    found = served(dues, sent, heard, _rows_run(worker) - before)
    bench.tell(f"{rate:,}/s asked: {found.results:,.0f}/s results, {found.in_time:,.0f}/s in time")
    return found


def _rows_run(worker: Running) -> float:
    """Waits until all requests are answered, then returns the number of rows that the worker has run."""
    (requests,) = worker.job.requests
    asked = there(worker.job.cluster, requests)
    while worker.total("records_settled_total") < asked:
        worker.check()
        time.sleep(0.02)
    return worker.total("batch_rows_total")


def served(dues: NDArray[np.float64], sent: Sent, heard: Heard, rows_run: float) -> Served:
    """Computes the figures of one load."""
    since = heard.instants - sent.began
    waited, seconds = since - dues[heard.numbers], float(dues[-1])
    codes = np.array(heard.codes)
    assert set(codes) <= {"", EXCEEDED}, f"answers with {set(codes)}"
    is_result, is_counted = codes == "", (since >= WARM_UP) & (since < seconds)

    def per_second(which: NDArray[np.bool_]) -> float:
        return float((which & is_counted).sum()) / (seconds - WARM_UP)

    waits = waited[is_result & is_counted]
    p50, p99 = np.quantile(waits, (0.5, 0.99)) * 1000 if len(waits) else (np.nan, np.nan)
    return Served(
        asked=len(dues) / seconds,
        results=per_second(is_result),
        in_time=per_second(is_result & (waited <= TIMEOUT)),
        refused=per_second(~is_result),
        p50=float(p50),
        p99=float(p99),
        wasted=rows_run - int(is_result.sum()),
    )


def _line(name: str, rounds: Sequence[Round], at: int) -> list[str]:
    middle = Served(*(statistics.median(column) for column in zip(*(each.served[at] for each in rounds), strict=True)))
    asked, results, in_time, refused, p50, p99 = (f"{figure:,.0f}" for figure in middle[:6])
    return [name, asked, results, in_time, f"{_share(rounds, at):.0%}", refused, p50, p99]


def _share(rounds: Sequence[Round], at: int) -> float:
    """Returns the rate of results read in time, divided by the capacity of their round."""
    return statistics.median(each.served[at].in_time / each.capacity for each in rounds)


def _bars(rounds: Sequence[Round]) -> list[Bar]:
    ours = [each.served[0] for each in rounds]
    return [
        Bar("goodput with deadlines, as a part of the capacity", _share(rounds, 0), least=0.9),
        Bar("rows that were run though their requests were refused", sum(each.wasted for each in ours), most=0),
    ]
