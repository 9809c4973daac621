"""Twice the load that the worker can bear, with deadlines and without: what is still worth having?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from operator import sub
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.bench.measuring.bench import OUTPUTS, Bench
from tests.bench.measuring.ground import HEADERS, WIDTH, Headers, Job, there
from tests.bench.measuring.pace import Answers, Load, answering, steady, verdict
from tests.bench.measuring.results import Bar, Section
from tests.bench.measuring.running import WORKER, Running
from tests.bench.measuring.throughput import lane_seconds
from tests.models import save, tied_mlp

# Dear, so that what twice the capacity costs publisher, reader and broker takes little from the lane. At 5,500 requests
# a second they took half of two cores, and an inference twice as long as with nothing beside it (measured 2026).
LAYERS, LAYER_WIDTH = 40, 2048
BATCH = 16
TIMEOUT_MS = 500
TIMEOUT = TIMEOUT_MS / 1000  # seconds
TIMES = 2  # the capacity
WARM_UP = 2.0  # seconds of the load that are not counted
EXCEEDED = "DEADLINE_EXCEEDED"
WITH: Headers = [*HEADERS, ("timeout-ms", b"%d" % TIMEOUT_MS)]
PATIENT = "no deadlines"
HEADERS_OF: dict[str, Headers] = {f"timeout-ms {TIMEOUT_MS}": WITH, PATIENT: HEADERS}
ROWS_RUN = "batch_rows_total"
RUNS = "inference_seconds_count"
STAMPED = {"message.timestamp.type": "LogAppendTime"}
IN_TIME = ("in time/s", "of capacity", "in the topic in time/s")
COLUMNS = ("", "asked/s", "results/s", *IN_TIME, "refused/s", "p50 ms", "p99")
HOW = f"""Rows of 256 float32, an MLP of {LAYERS} layers of {LAYER_WIDTH} that share one weight, batches of {BATCH},
4 partitions. The capacity is that of a closed loop; then an open loop asks {TIMES} times as often, and each request has
{TIMEOUT_MS} ms from the instant it is due. In time is a result that is read by then; beside it, one that lies in the
response topic by then. What is read while the load is on counts, without its first {WARM_UP:.0f} s; p50 and p99 are
those of results."""


class Served(NamedTuple):
    """One load: answers per second while it was on, what the results waited (ms), and what went wrong over the whole.

    `unanswered`: requests without one answer. `wasted`: rows that were run and have no result. `late`: results that
    were in the topic later than the deadline and two inferences, as a part of all.
    """

    asked: float
    results: float
    read_in_time: float
    appended_in_time: float
    refused: float
    p50: float
    p99: float
    unanswered: float
    wasted: float
    late: float


class Round(NamedTuple):
    """What one worker can bear, answers per second, and how it served each of the loads."""

    capacity: float
    served: Sequence[Served]


def measured(bench: Bench) -> Iterator[Section]:
    """One table."""
    with ExitStack() as stack:
        servers = bench.cluster.bootstrap_servers
        loads = {
            name: stack.enter_context(Load.of_rows(servers, headers, verdict)) for name, headers in HEADERS_OF.items()
        }
        rounds = [_round(bench, loads, is_reversed=bool(at % 2)) for at in range(bench.asked.rounds)]
    capacity = statistics.median(each.capacity for each in rounds)
    lines = [
        _line(name, [each.served[at] for each in rounds], statistics.median(_shares(rounds, at)))
        for at, name in enumerate(HEADERS_OF)
    ]
    yield Section(f"Twice the load of {capacity:,.0f}/s at most", HOW, COLUMNS, lines, _bars(rounds))


def _round(bench: Bench, loads: Mapping[str, Load], *, is_reversed: bool) -> Round:
    """One worker: what it can bear, then each load, once the one before is answered. Whose turn is first alternates."""
    model = save(tied_mlp(WIDTH, LAYER_WIDTH, LAYERS, OUTPUTS), bench.folder, "dear")
    job = Job(bench.cluster, [], model, BATCH)
    with answering(WORKER, job, *loads.values(), config=STAMPED) as contender:
        capacity = loads[PATIENT].most(bench.asked.seconds)
        bench.tell(f"capacity: {capacity:,.0f}/s")
        names = list(loads)[:: -1 if is_reversed else 1]
        found = {name: _load(bench, contender, capacity, loads[name]) for name in names}
    return Round(capacity, [found[name] for name in loads])


class Work(NamedTuple):
    """What a worker has run: rows, inferences, and seconds of them."""

    rows: float
    runs: float
    seconds: float

    @property
    def inference(self) -> float:
        """Mean seconds of one."""
        return self.seconds / max(1.0, self.runs)


def _load(bench: Bench, worker: Running, capacity: float, load: Load) -> Served:
    rate, seconds = round(capacity * TIMES), WARM_UP + bench.asked.seconds
    before, epoch = _work(worker), time.time() - time.monotonic()
    answers = load.answers(steady(rate, seconds))
    after = _work(worker)
    found = served(answers, rate, seconds, epoch, Work(*map(sub, after, before)))
    bench.tell(f"{rate:,}/s asked: {found.results:,.0f}/s results, {found.read_in_time:,.0f}/s in time")
    return found


def _work(worker: Running) -> Work:
    """All of it so far, once everything that was asked is answered."""
    replica, (requests,) = worker.replica, worker.job.requests
    assert replica is not None
    replica.wait_until_settled(there(worker.job.cluster, requests))
    return Work(replica.total(ROWS_RUN), replica.total(RUNS), lane_seconds(replica))


def served(answers: Answers, rate: int, seconds: float, epoch: float, work: Work) -> Served:
    """What came of a load of so many seconds. `epoch`: what the broker's clock is ahead of the monotonic one."""
    due = answers.read_at - answers.waited
    codes = np.array([verdict.code for verdict in answers.verdicts])
    assert set(codes) <= {"", EXCEEDED}, f"answers with {set(codes)}"
    appended = np.array([verdict.appended_at for verdict in answers.verdicts]) - epoch - due
    since = answers.read_at - due.min()
    is_result, is_counted = codes == "", (since >= WARM_UP) & (since < seconds)

    def per_second(which: NDArray[np.bool_]) -> float:
        return float((which & is_counted).sum()) / (seconds - WARM_UP)

    waits = answers.waited[is_result & is_counted]
    p50, p99 = np.quantile(waits, (0.5, 0.99)) * 1000 if len(waits) else (np.nan, np.nan)
    results = int(is_result.sum())
    return Served(
        asked=rate,
        results=per_second(is_result),
        read_in_time=per_second(is_result & (answers.waited <= TIMEOUT)),
        appended_in_time=per_second(is_result & (appended <= TIMEOUT)),
        refused=per_second(~is_result),
        p50=float(p50),
        p99=float(p99),
        unanswered=len(due) - len(np.unique(np.round(due * 1e6))),
        wasted=work.rows - results,
        late=float((is_result & (appended > TIMEOUT + 2 * work.inference)).sum()) / max(1, results),
    )


def _line(name: str, runs: Sequence[Served], share: float) -> list[str]:
    middle = Served(*(statistics.median(column) for column in zip(*runs, strict=True)))
    paces = [f"{pace:,.0f}" for pace in middle[:5]]
    return [name, *paces[:3], f"{share:.0%}", *paces[3:], f"{middle.p50:,.0f}", f"{middle.p99:,.0f}"]


def _shares(rounds: Sequence[Round], at: int) -> list[float]:
    """What was read in time, as a part of that round's capacity."""
    return [each.served[at].read_in_time / each.capacity for each in rounds]


def _bars(rounds: Sequence[Round]) -> list[Bar]:
    """All of the load with deadlines, but that every request of both is answered."""
    ours = [each.served[0] for each in rounds]
    return [
        Bar("goodput with deadlines, as a part of the capacity", statistics.median(_shares(rounds, 0)), least=0.9),
        Bar("requests without an answer of their own", sum(s.unanswered for r in rounds for s in r.served), most=0),
        Bar("rows that were run though their requests were refused", sum(each.wasted for each in ours), most=0),
        Bar(
            "results later than the deadline and two inferences, as a part of all", max(s.late for s in ours), most=0.01
        ),
    ]
