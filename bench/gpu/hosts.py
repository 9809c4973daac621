"""Compares the model in a process of its own with the model in the worker's process, from Kafka to Kafka.

The workers of a network are started together, and each stands still (SIGSTOP) outside its turns. So all of them meet
the same device, broker and backlog within seconds, and a round costs no start.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

from bench.gpu.main import alone
from bench.gpu.networks import Network
from bench.gpu.results import NETWORK, Case, Column, Line, Part, Stage, of
from bench.gpu.serving import Flow, backlog, worked_off
from bench.ground import GIVE_UP, LOOK_EVERY, WORKER, response_topic, there, wait_for
from bench.running import Running, running

THREAD, PROCESS = HOSTS = ("thread", "process")
LANES = {THREAD: (1,), PROCESS: (1, 2)}
ROUNDS = 2
SETTLING = 0.3  # seconds of a turn before its measurement, in which a worker answers what it had at hand
STILL = {"KAFKA__SESSION_TIMEOUT_MS": "300000"}  # else the group does without a worker that stands still for long
STARTING = 1.0  # seconds of the backlog that go before the first turn
MOST_BYTES = 4 << 30  # of a backlog: each turn of each worker needs its part
HOW = """Alone: as in the main job. The others: workers with the model in a process of its own, or in a thread
(`MODEL__HOST`), which work off a backlog in 4 partitions in turn, twice; medians. Beside the thread: the median of the
two rounds' ratios to the worker with the model in a thread, for one lane. CPU: with all processes of a worker."""
COLUMNS = (
    *NETWORK,
    Column("contender", "contender"),
    Column("lanes", "lanes"),
    Column("rate", "results/s", ",.0f"),
    Column("share", "of alone", ".2f"),
    Column("ratio", "beside the thread", ".3f"),
    Column("lane", "lane busy", ".0%"),
    Column("busy", "busy, NVML", ".0%"),
    Column("cpu_us", "CPU us each", ".1f"),
    Column("rounds", "rounds"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """A worker that stands still outside its turns, and its figures in them."""

    host: str
    lanes: int
    contender: Running
    responses: str
    flows: list[Flow] = field(default_factory=list)

    def stop(self) -> None:
        os.kill(self.contender.pid, signal.SIGSTOP)

    def turn(self, stage: Stage, rows: int) -> None:
        """Let it work for `stage.seconds`, and measure it."""
        before = there(stage.cluster, self.responses)
        os.kill(self.contender.pid, signal.SIGCONT)
        wait_for(stage.cluster, self.responses, before + 1, self.contender.why_dead)
        time.sleep(SETTLING)
        self.flows.append(worked_off(stage, self.contender, self.responses, rows))
        self.stop()


def cases(stage: Stage) -> Iterator[Case]:
    """Yields each network in turn."""
    for network in stage.networks:
        yield Case(of(network), partial(_network, stage, network))


def _network(stage: Stage, network: Network) -> Iterator[Line]:
    most = alone(stage, network)
    yield {"contender": "alone", "rate": most.rate, "share": 1.0, "cpu_us": most.cpu_us, **most.seen}
    spare = STARTING + ROUNDS * (SETTLING + stage.seconds) - stage.seconds
    with ExitStack() as stack:
        topic, rows = stack.enter_context(backlog(stage, network, most.rate, spare, MOST_BYTES))
        workers = [_started(stage, network, topic, *each, stack) for each in _contenders(stage)]
        for worker, why in _stood(stage, workers):
            workers.remove(worker)
            yield {"contender": worker.host, "lanes": str(worker.lanes), "failed": why}
        for number in range(ROUNDS):
            for worker in workers[number:] + workers[:number]:
                worker.turn(stage, rows)
    threads = {worker.lanes: worker.flows for worker in workers if worker.host == THREAD}
    for worker in workers:
        yield _line(worker, threads.get(worker.lanes, []), most.rate)


def _contenders(stage: Stage) -> list[tuple[str, int]]:
    """Each host, and its lanes."""
    hosts = [*HOSTS, *(f"{PROCESS}, {root}" for root in stage.roots)]
    return sorted(((host, lanes) for host in hosts for lanes in LANES[host.partition(", ")[0]]), key=itemgetter(1))


def _started(stage: Stage, network: Network, topic: str, host: str, lanes: int, stack: ExitStack) -> Standing:
    """Starts a worker; the stack ends it. A host with a folder is that checkout's."""
    responses = stack.enter_context(response_topic(stage.cluster))
    kind, _, root = host.partition(", ")
    job = stage.job(network, [topic], MODEL__HOST=kind, BATCHING__LANES=str(lanes), **STILL)
    contender = stack.enter_context(running(f"{WORKER}@{root}" if root else WORKER, job, responses))
    return Standing(host, lanes, contender, responses)


def _stood(stage: Stage, workers: Sequence[Standing]) -> Iterator[tuple[Standing, str]]:
    """Stops each worker at its first answers. Yields those that ended before, and why."""
    waiting, until = list(workers), time.monotonic() + GIVE_UP
    while waiting:
        for worker in list(waiting):
            if (why := worker.contender.why_dead()) is not None:
                yield worker, why
            elif there(stage.cluster, worker.responses):
                worker.stop()
            else:
                continue
            waiting.remove(worker)
        assert time.monotonic() < until, f"{[each.host for each in waiting]}: no answer after {GIVE_UP} s"
        time.sleep(LOOK_EVERY)


def _line(worker: Standing, threads: Sequence[Flow], most: float) -> Line:
    flows = worker.flows
    rate = statistics.median(flow.rate for flow in flows)
    ratios = [flow.rate / thread.rate for flow, thread in zip(flows, threads, strict=False)]
    seen = [busy for flow in flows if (busy := flow.seen["busy"]) is not None]
    return {
        "contender": worker.host,
        "lanes": str(worker.lanes),
        "rate": rate,
        "share": rate / most,
        "ratio": statistics.median(ratios) if ratios else None,
        "lane": statistics.median(flow.lane for flow in flows),
        "busy": statistics.median(map(float, seen)) if seen else None,
        "cpu_us": statistics.median(flow.cpu_us for flow in flows),
        "rounds": " ".join(f"{flow.rate:,.0f}" for flow in flows),
        "missing": flows[0].why,
    }


PART = Part("host", "On a GPU: the model's own process", HOW, COLUMNS, cases, limit=360, has_kafka=True)
