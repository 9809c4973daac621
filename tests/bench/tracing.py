"""What tracing costs: one worker's loop in this process, off and on, with as many requests sampled as you like.

    python -m tests.bench.tracing                 # 5 rounds of 40 000 rows, a table
    python -m tests.bench.tracing --rows 20000 --rounds 3

The worker is all real but for Kafka and the model: records lie in memory, a run copies its rows, an answer is
acknowledged in the next turn. So a row costs less than in a worker on a broker, and tracing's share looks larger. The
collector is a process of its own on loopback; the SDK's thread that exports to it shares this interpreter.

Off and on take turns; of several rounds the best counts, since a busy neighbour makes one slower and never faster. CPU
time is the loop's thread's, and the whole process's with the exports that fell into the run.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.builders import signature, spec
from tests.fakes import FakeEvents, FakeSignals
from tests.kafka.collector import Collector
from worker.app import GC_THRESHOLDS, SWITCH_INTERVAL
from worker.codecs import Codecs, Wire
from worker.codecs.wire_contract import OCTETS
from worker.core.batching.back_pressure import Bounds, Intake
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.deadlines.forecast import Outlook
from worker.core.deadlines.punctuality import Punctuality
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Batch, CommitResult, Finished, Message, ModelKey, Partition, Place, Record
from worker.core.rejections import Rejections
from worker.core.tensors.stacking import Stacker
from worker.delivery.at_least_once import AtLeastOnce
from worker.loop.composition import compose
from worker.loop.conduct import Conduct
from worker.loop.suspects import Suspects
from worker.ports import Assignments
from worker.telemetry.tracing import ServedModel, TracedCodec, TracedLanes, Tracing, start

WIDTH = 16
BATCH = 64
CONTENT_TYPE = ("content-type", OCTETS.encode())
P0 = Partition("requests", 0)
SHARES = (("no traceparent", None), ("none sampled", 0.0), ("1 % sampled", 0.01), ("all sampled", 1.0))


class Source:
    """Records that lie ready."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._next = 0

    def subscribe(self, assignments: Assignments) -> None:
        """There is no group."""

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        records = self._records[self._next : self._next + max_records]
        self._next += len(records)
        return records

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def rewind(self, partitions: Sequence[Partition]) -> None: ...
    def withhold(self, partition: Partition) -> None: ...
    def positions(self) -> Mapping[Partition, int]:
        return {}

    def release(self, partition: Partition) -> None: ...

    def withdraw_note(self, partition: Partition, offset: int) -> bool:
        return True

    def clear_note(self, partition: Partition, next_offset: int, patience: float) -> None: ...

    def note_isolated_run(self, partition: Partition, offset: int) -> bool:
        return True

    def close(self) -> None: ...
    def leave(self) -> None: ...
    def commit(self, offsets: Mapping[Partition, int]) -> None: ...
    def commit_results(self) -> Sequence[CommitResult]:
        return ()


class Lanes:
    """A model that gives back what it is given, at once."""

    def __init__(self) -> None:
        self._waiting: deque[Batch] = deque()

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def submit(self, batch: Batch) -> None:
        self._waiting.append(batch)

    def resubmit(self, halves: Sequence[Batch]) -> None: ...
    def probe(self, model: ModelKey) -> None: ...

    def finished(self, timeout: float) -> Sequence[Finished]:
        done = [Finished(batch, [batch.feeds["x"].copy()], None, 0.0, batch.model) for batch in self._waiting]
        self._waiting.clear()
        return done


class Sink:
    """Acknowledges what it was sent by the next poll."""

    def __init__(self) -> None:
        self._sent: list[Place] = []

    def send(self, messages: Sequence[Message], place: Place) -> None:
        self._sent.append(place)

    def poll(self, timeout: float) -> Sequence[Place]:
        delivered, self._sent = self._sent, []
        return delivered

    def push(self) -> None: ...


def records(rows: int, sampled: float | None) -> list[Record]:
    """Requests of one row; None: without `traceparent`, else this share of them with the sampled flag."""
    value = np.arange(WIDTH, dtype="<f4").tobytes()
    every = round(1 / sampled) if sampled else 0
    made = []
    for n in range(rows):
        headers = [CONTENT_TYPE]
        if sampled is not None:
            flag = 1 if every and n % every == 0 else 0
            headers.append(("traceparent", b"00-%032x-%016x-%02x" % (n + 1, n + 1, flag)))
        made.append(Record(P0, n, b"key", value, headers, None))
    return made


class Cost(NamedTuple):
    """Of one row, in microseconds: by the clock, of the loop's CPU, of the whole process's."""

    wall: float
    loop: float
    process: float
    spans: int = 0


def cost(given: Sequence[Record], tracing: Tracing | None) -> Cost:
    """Through one worker, from the first poll to the last acknowledgement."""
    ledger, source, events = OffsetLedger(), Source(given), FakeEvents()
    model = signature(spec("x", dims=(WIDTH,)), outputs=[spec("y", dims=(WIDTH,))])
    parts = Codecs([model], Wire("answers", "g", default_content_type=OCTETS), lambda _: None), Lanes(), Sink()
    codec, lanes, sink = parts if tracing is None else _traced(tracing, *parts)
    policies = {model.key: BatchPolicy(BATCH, 1 << 24, 0.0)}
    worker = compose(
        source=source,
        offsets=source,
        notes=source,
        codec=codec,
        ledger=ledger,
        intake=Intake(Bounds(20_000, 131_072, 1 << 26), ledger, chunk=BATCH),
        batcher=Batcher(policies),
        suspects=Suspects(policies, most_in_flight=1_000),
        stackers={model.key: Stacker(model)},
        lanes=lanes,
        punctuality=Punctuality(Outlook(), time.time),
        delivery=AtLeastOnce(
            ledger=ledger,
            encoder=codec,
            sink=sink,
            offsets=source,
            events=events,
            commit_interval=0.2,
            clock=time.monotonic,
        ),
        rejections=Rejections(),
        events=events,
        signals=FakeSignals(),
        conduct=Conduct(),
        clock=time.monotonic,
    )
    clocks = (time.perf_counter, time.thread_time, time.process_time)
    began = [clock() for clock in clocks]
    while len(events.settled_at) < len(given):
        worker.turn()
    wall, loop, process = [(clock() - then) * 1e6 / len(given) for clock, then in zip(clocks, began, strict=True)]
    return Cost(wall, loop, process)


def _traced(tracing: Tracing, codec: Codecs, lanes: Lanes, sink: Sink) -> tuple[TracedCodec, TracedLanes, Sink]:
    served = ServedModel("copy", "1", "cpu")
    return TracedCodec(codec, tracing), TracedLanes(lanes, tracing, served), sink


def _collect(line: Connection) -> None:
    with Collector() as collector:
        line.send(collector.endpoint)
        while line.recv():
            line.send(len(collector.spans))


@contextmanager
def collector() -> Iterator[Connection]:
    """A collector in a process of its own. Any truth sent is answered by the number of spans it has."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_collect, args=(theirs,), daemon=True)
    process.start()
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = ours.recv()
    yield ours
    ours.send(False)
    process.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(*GC_THRESHOLDS)
    table = Table("requests", "tracing", "rows/s", "loop, µs a row", "process", "spans")
    with collector() as line:
        for title, sampled in SHARES:
            given = records(asked.rows, sampled)
            pairs = [(one(given, line, is_on=False), one(given, line, is_on=True)) for _ in range(asked.rounds + 1)]
            for name, found in zip(("off", "on"), zip(*pairs[1:], strict=True), strict=True):  # the first warms up
                best = [min(costs) for costs in zip(*found, strict=True)]
                cells = (f"{1e6 / best[0]:,.0f}", f"{best[1]:.1f}", f"{best[2]:.1f}", f"{found[-1].spans:,}")
                table.add_row(title, name, *cells)
    Console().print(table)


def one(given: Sequence[Record], line: Connection, *, is_on: bool) -> Cost:
    """One run, and the spans that the collector got of it."""
    before = _spans(line)
    tracing = start("g") if is_on else None
    found = cost(given, tracing)
    if tracing is not None:
        tracing.close(30.0)
    return found._replace(spans=_spans(line) - before)


def _spans(line: Connection) -> int:
    line.send(True)
    spans: int = line.recv()
    return spans


if __name__ == "__main__":
    main()
