"""Twice the load that the worker can bear, with deadlines and without: how many answers are still worth having?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.ground import HEADERS, OUTPUTS, STAMPED, WIDTH, WORKER, Bench, Headers, Job, there
from bench.pace import Load, answering, steady
from bench.running import Running
from bench.tables import Bar, Section
from bench.turns import lane_seconds
from tests.models import save, tied_mlp
from worker.core.records import Record
from worker.tools.bench.loads import Heard, Sent

# Dear, so that what twice the capacity costs publisher, reader and broker takes little from the lane. At 5,500 requests
# a second they took half of two cores, and an inference twice as long as with nothing beside it (measured 2026).
LAYERS, LAYER_WIDTH = 40, 2048
BATCH = 16
TIMEOUT_MS = 500
TIMEOUT = TIMEOUT_MS / 1000  # seconds
TIMES = 2  # the capacity
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
{TIMEOUT_MS} ms from the instant it is due. In time is a result that is read by then. What is read while the load is on
counts, without its first {WARM_UP:.0f} s; p50 and p99 are those of results."""


class Verdict(NamedTuple):
    """The error code of an answer, empty for a result; when the broker appended it, seconds since the epoch."""

    code: str
    appended_at: float


class Served(NamedTuple):
    """One load: answers per second while it was on, the waits of the results (ms), and its faults over the whole.

    `wasted`: rows that were run and have no result. `late`: results that were in the topic later than the deadline and
    two inferences, as a part of all.
    """

    asked: float
    results: float
    in_time: float
    refused: float
    p50: float
    p99: float
    wasted: float
    late: float


class Work(NamedTuple):
    """A worker's work: rows, inferences, and seconds of them."""

    rows: float
    runs: float
    seconds: float


class Round(NamedTuple):
    """The capacity of one worker, answers per second, and how it served each of the loads."""

    capacity: float
    served: Sequence[Served]


def verdict(_number: int, answer: Record) -> Verdict:
    """The verdict of one answer, in a topic that stamps its records itself."""
    assert answer.timestamp_ms is not None
    return Verdict((dict(answer.headers).get("error-code") or b"").decode(), answer.timestamp_ms / 1000)


def measured(bench: Bench) -> Iterator[Section]:
    """One table."""
    with ExitStack() as stack:
        servers = bench.cluster.bootstrap_servers
        loads = {
            name: stack.enter_context(Load.of_rows(servers, headers, verdict)) for name, headers in HEADERS_OF.items()
        }
        rounds = [_round(bench, loads, is_reversed=bool(at % 2)) for at in range(bench.asked.rounds)]
    capacity = statistics.median(each.capacity for each in rounds)
    lines = [_line(name, rounds, at) for at, name in enumerate(HEADERS_OF)]
    yield Section(f"Twice the load of {capacity:,.0f}/s at most", HOW, COLUMNS, lines, _bars(rounds))


def _round(bench: Bench, loads: Mapping[str, Load], *, is_reversed: bool) -> Round:
    """One worker: its capacity, then each load, once the one before is answered. Whose turn is first alternates."""
    model = save(tied_mlp(WIDTH, LAYER_WIDTH, LAYERS, OUTPUTS), bench.folder, "dear")
    job = Job(bench.cluster, [], model, BATCH)
    with answering(WORKER, job, *loads.values(), config=STAMPED) as contender:
        capacity = loads[PATIENT].most(bench.asked.seconds)
        bench.tell(f"capacity: {capacity:,.0f}/s")
        names = list(loads)[:: -1 if is_reversed else 1]
        found = {name: _load(bench, contender, capacity, loads[name]) for name in names}
    return Round(capacity, [found[name] for name in loads])


def _load(bench: Bench, worker: Running, capacity: float, load: Load) -> Served:
    rate, seconds = round(capacity * TIMES), WARM_UP + bench.asked.seconds
    before, epoch = _work(worker), time.time() - time.monotonic()
    dues = steady(rate, seconds)
    sent, heard = load.run(dues, worker.check)
    work = Work(*(after - earlier for after, earlier in zip(_work(worker), before, strict=True)))
    found = served(dues, sent, heard, epoch, work)
    bench.tell(f"{rate:,}/s asked: {found.results:,.0f}/s results, {found.in_time:,.0f}/s in time")
    return found


def _work(worker: Running) -> Work:
    """All of it so far, once everything that was asked is answered."""
    assert worker.replica is not None
    (requests,) = worker.job.requests
    worker.replica.wait_until_settled(there(worker.job.cluster, requests))
    return Work(worker.total("batch_rows_total"), worker.total("inference_seconds_count"), lane_seconds(worker))


def served(dues: NDArray[np.float64], sent: Sent, heard: Heard, epoch: float, work: Work) -> Served:
    """The figures of one load. `epoch`: how far the broker's clock is ahead of the monotonic one."""
    due = sent.began + dues[heard.numbers]
    waited, seconds = heard.instants - due, float(dues[-1])
    codes = np.array([answer.code for answer in heard.findings])
    assert set(codes) <= {"", EXCEEDED}, f"answers with {set(codes)}"
    appended = np.array([answer.appended_at for answer in heard.findings]) - epoch - due
    since = heard.instants - sent.began
    is_result, is_counted = codes == "", (since >= WARM_UP) & (since < seconds)

    def per_second(which: NDArray[np.bool_]) -> float:
        return float((which & is_counted).sum()) / (seconds - WARM_UP)

    waits = waited[is_result & is_counted]
    p50, p99 = np.quantile(waits, (0.5, 0.99)) * 1000 if len(waits) else (np.nan, np.nan)
    results = int(is_result.sum())
    inference = work.seconds / max(1.0, work.runs)
    return Served(
        asked=len(dues) / seconds,
        results=per_second(is_result),
        in_time=per_second(is_result & (waited <= TIMEOUT)),
        refused=per_second(~is_result),
        p50=float(p50),
        p99=float(p99),
        wasted=work.rows - results,
        late=float((is_result & (appended > TIMEOUT + 2 * inference)).sum()) / max(1, results),
    )


def _line(name: str, rounds: Sequence[Round], at: int) -> list[str]:
    middle = Served(*(statistics.median(column) for column in zip(*(each.served[at] for each in rounds), strict=True)))
    asked, results, in_time, refused, p50, p99 = (f"{figure:,.0f}" for figure in middle[:6])
    return [name, asked, results, in_time, f"{_share(rounds, at):.0%}", refused, p50, p99]


def _share(rounds: Sequence[Round], at: int) -> float:
    """The results that were read in time, as a part of that round's capacity."""
    return statistics.median(each.served[at].in_time / each.capacity for each in rounds)


def _bars(rounds: Sequence[Round]) -> list[Bar]:
    ours = [each.served[0] for each in rounds]
    return [
        Bar("goodput with deadlines, as a part of the capacity", _share(rounds, 0), least=0.9),
        Bar("rows that were run though their requests were refused", sum(each.wasted for each in ours), most=0),
        Bar("results two inferences later than the deadline, as a part of all", max(s.late for s in ours), most=0.01),
    ]
