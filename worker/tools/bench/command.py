"""`inference-worker bench`: the worker under load, from Kafka to Kafka, next to what people write by hand.

Results go to standard output, progress to standard error.
"""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from rich.table import Table
from rich.text import Text

from worker.core.failures import Incomplete
from worker.signals import STOPPING, unwind_when_told
from worker.terminal.terminal import Progressed, aside, count, page, print_json, printable, progress, say, write
from worker.tools.bench.generator import Generator, Site, mock_site
from worker.tools.bench.loads import QUANTILES, Heard, Steady, Window, steady_flow, window_flow
from worker.tools.bench.options import BenchOrder
from worker.tools.bench.plain_loop import LoopProcess
from worker.tools.bench.plan import Plan
from worker.tools.bench.replica import Replica, main_thread_seconds
from worker.tools.bench.verdict import Contender, Costs, Figures, document, verdict
from worker.tools.kafka.embedded import PARTITIONS
from worker.tools.kafka.own_topics import OwnTopics
from worker.version import VERSION

OpenSite = Callable[[], AbstractContextManager[Site]]


def bench(order: BenchOrder) -> int:
    """0 when all was measured and no answer was an error.

    Raises `BadConfiguration` for what cannot be begun, `Incomplete` when it was interrupted or answers were errors, and
    whatever ends a contender.
    """
    plan = Plan(order, os.environ)
    facts = _facts(plan)
    unwind_when_told()  # so that no process and no topic is left behind
    try:
        with _sites(plan) as open_site, Generator(plan.requests) as generator, progress("starting", 6) as tell:
            figures = _Course(plan, generator, open_site, tell).run()
    except KeyboardInterrupt:
        raise Incomplete("interrupted: nothing was measured to its end") from None
    if order.as_json:
        print_json(document(figures, facts))
    else:
        _show(figures, facts)
    _judge(figures)
    return 0


class _Course:
    """The contenders' turns: each has fresh topics, a closed loop for its maximum, then the steady load."""

    def __init__(self, plan: Plan, generator: Generator, open_site: OpenSite, tell: Progressed) -> None:
        self._plan, self._generator, self._open_site, self._tell = plan, generator, open_site, tell
        self._rate = plan.order.rate
        self._steps = itertools.count()
        self._costs: Costs | None = None

    def run(self) -> Figures:
        """All of it, the worker first: half of its maximum is the rate, unless another one was asked for."""
        plan, at_once = self._plan, max(1, self._plan.max_rows // self._plan.order.rows_per_request)
        contenders = [
            self._turn("the worker", plan.worker),
            self._turn("the plain loop", lambda site: plan.loop(site, at_once)),
            self._turn("one by one", lambda site: plan.loop(site, 1)),
        ]
        assert self._costs is not None
        return Figures(contenders, self._costs, self._rate or 0.0, plan.encoding.value)

    def _turn(self, name: str, start: Callable[[Site], Replica | LoopProcess]) -> Contender:
        with self._open_site() as site, start(site) as contender:
            contender.wait_until_ready()
            self._generator.open(site)
            self._tell(next(self._steps), f"{name}: maximum")
            pace = Window(*self._plan.window, self._plan.order.seconds)
            before = main_thread_seconds(contender.pid) if isinstance(contender, Replica) else None
            sent, heard = self._generator.run(pace, contender.check, self._limit)
            maximum = window_flow(pace, sent, heard)
            if isinstance(contender, Replica):
                self._costs = self._costs_of(contender, before, heard)
            # Two figures are enough for a rate that is chosen.
            rate = self._rate = self._rate or max(1.0, float(f"{maximum.requests_per_second / 2:.2g}"))
            self._tell(next(self._steps), f"{name}: {rate:,.0f} a second")
            found = Contender(name, maximum, None, heard.errors, heard.error, heard.repeated)
            # More than it can do would make a queue, and take many times as long to be answered.
            if rate <= maximum.requests_per_second and not maximum.unanswered:
                found = self._steady(found, rate, contender)
            if isinstance(contender, Replica) and not maximum.unanswered:
                contender.stop()
        return found

    @property
    def _limit(self) -> float:
        """How long the rest of a load may take, seconds."""
        return max(30.0, 10 * self._plan.order.seconds)

    def _costs_of(self, worker: Replica, before: float | None, heard: Heard) -> Costs:
        """The costs of a worker's first load."""
        after, answers = main_thread_seconds(worker.pid), max(1, len(heard.numbers))
        worker.wait_until_settled(len(heard.numbers))
        counts = {name: sum(samples.values()) for name, samples in worker.all_counts().items()}
        lanes = self._plan.settings.batching.lanes
        return Costs(
            model_us=counts["inference_seconds_sum"] / max(1.0, counts["records_settled_total"]) / lanes * 1e6,
            encoding_us=self._plan.codec_seconds() * 1e6,
            loop_us=None if before is None or after is None else (after - before) / answers * 1e6,
            rows_per_batch=counts["batch_rows_total"] / max(1.0, counts["batches_total"]),
        )

    def _steady(self, found: Contender, rate: float, contender: Replica | LoopProcess) -> Contender:
        pace = Steady(rate, max(1, round(rate * self._plan.order.seconds)), self._plan.kept)
        sent, heard = self._generator.run(pace, contender.check, self._limit)
        return replace(
            found,
            steady=steady_flow(pace, sent, heard, time.monotonic()),
            errors=Counter(found.errors) + Counter(heard.errors),
            error=found.error or heard.error,
            repeated=found.repeated + heard.repeated,
        )


@contextmanager
def _sites(plan: Plan) -> Iterator[OpenSite]:
    """Sites for one contender after the other: a fresh mock broker, which would keep the load before; or fresh topics.

    The topics are deleted in the end.
    """
    kafka = plan.settings.kafka
    if plan.is_embedded:
        yield lambda: mock_site(kafka.config)
        return
    prefix = f"{plan.order.prefix or 'inference-worker-bench'}-{secrets.token_hex(4)}"
    topics, numbers = OwnTopics(kafka, prefix, PARTITIONS), itertools.count(1)

    @contextmanager
    def open_site() -> Iterator[Site]:
        name = f"{prefix}-{next(numbers)}"
        own = f"{name}-requests", f"{name}-answers", f"{name}-rejected"
        topics.create(*own)
        topics.will_use(name)
        yield Site(kafka, *own, name)
        topics.delete(*own)  # after a failure that is left to the end

    try:
        yield open_site
    finally:
        found = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
        left = topics.close()  # a second Ctrl-C would leave them behind
        for number, handler in found.items():
            signal.signal(number, handler)
        if left:
            say(aside(), f"these topics could not be deleted: {printable(', '.join(left))}")


def _facts(plan: Plan) -> dict[str, Any]:
    return {
        "version": VERSION,
        "broker": None if plan.is_embedded else plan.settings.kafka.bootstrap_servers,
        "model": plan.settings.model.name,
        "rows_per_request": plan.order.rows_per_request,
        "request_bytes": plan.request_bytes,
        "open_axes": plan.open_axes,
        "seconds": plan.order.seconds,
        "processors": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _show(figures: Figures, facts: dict[str, Any]) -> None:
    screen, rows = page(), count(facts["rows_per_request"], "row")
    told = f"{facts['model']}, requests of {rows} ({figures.encoding}, {facts['request_bytes']:,} bytes)"
    say(screen, printable(f"{told}, on {facts['broker'] or 'a mock broker'}"))
    say(screen, f"{count(facts['processors'], 'processor')}, load average {facts['load_average']:g} before")
    if not facts["broker"]:
        say(screen, "A mock is not a Kafka: compare these figures with each other, and with no others.")
    for axis, lengths in facts["open_axes"].items():
        say(screen, printable(f"{axis}, which the model's file leaves open, is {lengths} long here, and no longer."))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("")
    for head in ("maximum,\nrequests/s", f"at {figures.rate:,.0f}/s:\nanswers/s", "p50\nms", "p99\nms"):
        table.add_column(head, justify="right", no_wrap=True)
    for each in figures.contenders:
        table.add_row(each.name, *_cells(each))
    screen.print()
    write(screen, table)
    screen.print()
    for sentence in verdict(figures):
        screen.print(Text(sentence, "bold"))


def _cells(each: Contender) -> Iterator[str]:
    steady = each.steady
    yield f"{each.maximum.requests_per_second:,.0f}{'' if each.maximum.is_paced else ' *'}"
    if steady is None:
        yield "too many"
    else:
        marks = ("" if steady.is_paced else " *") + ("" if steady.keeps_up else " †")
        yield f"{steady.requests_per_second:,.0f}{marks}"
    for name in QUANTILES:
        yield f"{steady.latency_ms[name]:,.1f}" if steady and name in steady.latency_ms else "–"


def _judge(figures: Figures) -> None:
    """Raises `Incomplete` for answers that are errors or missing."""
    shortfalls = []
    for each in figures.contenders:
        if each.errors:
            codes = ", ".join(f"{number:,} {code}" for code, number in each.errors.items())
            shortfalls.append(f"{each.name}: answers that were errors: {codes}: {each.error}")
        if lost := each.maximum.unanswered + (each.steady.unanswered if each.steady else 0):
            shortfalls.append(f"{each.name}: {lost:,} requests had no answer when the load was given up")
    if shortfalls:
        raise Incomplete("\n".join(shortfalls))
