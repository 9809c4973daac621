"""`inference-worker bench`: measures the worker under load, from Kafka to Kafka, next to two loops written by hand.

Results go to standard output, progress to standard error.
"""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.table import Table
from rich.text import Text

from worker.core.failures import Incomplete
from worker.signals import unwind_when_told
from worker.terminal.terminal import (
    Progressed,
    aside,
    count,
    print_json,
    printable,
    progress,
    say,
    table_console,
    write,
)
from worker.tools.bench.figures import (
    QUANTILES,
    Contender,
    Costs,
    Figures,
    Flow,
    Heard,
    Pace,
    Sent,
    Steady,
    Window,
    document,
    steady_flow,
    verdict,
    window_flow,
)
from worker.tools.bench.generator import Generator, Site, mock_site
from worker.tools.bench.plain_loop import answer_for_ever
from worker.tools.bench.plan import Plan
from worker.tools.kafka.embedded import PARTITIONS
from worker.tools.kafka.own_topics import OwnTopics
from worker.tools.options import BenchOrder
from worker.tools.processes import Child, Replica, main_thread_seconds
from worker.version import VERSION

OpenSite = Callable[[], AbstractContextManager[Site]]


def bench(order: BenchOrder) -> int:
    """Run the measurement. Returns 0 if all was measured and no answer was an error.

    Raises `BadConfiguration` if it cannot begin, `Incomplete` if it was interrupted or answers were errors or missing,
    and whatever ends a contender.
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
    """Measures one contender after the other, on fresh topics: a closed loop for its maximum, then the steady load."""

    def __init__(self, plan: Plan, generator: Generator, open_site: OpenSite, tell: Progressed) -> None:
        self._plan, self._generator, self._open_site, self._tell = plan, generator, open_site, tell
        self._rate = plan.order.rate
        self._steps = itertools.count()

    def run(self) -> Figures:
        """Measure all, the worker first: the rate is half of its maximum, unless the order names one."""
        plan = self._plan
        worker, costs = self._worker()
        at_once = max(1, plan.max_rows // plan.order.rows_per_request)
        loops = [self._loop("the plain loop", at_once), self._loop("one by one", 1)]
        return Figures([worker, *loops], costs, self._rate or 0.0, plan.encoding.value)

    def _worker(self) -> tuple[Contender, Costs]:
        with self._open_site() as site, self._plan.worker(site) as replica:
            replica.wait_until_ready()
            before = main_thread_seconds(replica.pid)
            maximum = self._maximum("the worker", site, replica.check)
            costs = self._costs(replica, before)
            found = self._steady("the worker", *maximum, replica.check)
            if not found.maximum.unanswered:
                replica.stop()
        return found, costs

    def _loop(self, name: str, at_once: int) -> Contender:
        plan = self._plan
        job = plan.settings.model, plan.signature
        with (
            self._open_site() as site,
            Child("the loop", answer_for_ever, *job, site, at_once, plan.encoding) as loop,
        ):
            loop.receive()
            return self._steady(name, *self._maximum(name, site, loop.check), loop.check)

    def _maximum(self, name: str, site: Site, check: Callable[[], None]) -> tuple[Flow, Heard]:
        self._generator.open(site)
        pace = Window(*self._plan.window, self._plan.order.seconds)
        sent, heard = self._given(f"{name}: maximum", pace, check)
        return window_flow(pace, sent, heard), heard

    def _costs(self, worker: Replica, before: float | None) -> Costs:
        """Returns the costs of a worker's first load."""
        counts, after = worker.totals(), main_thread_seconds(worker.pid)
        settled, lanes = max(1.0, counts["records_settled_total"]), self._plan.settings.batching.lanes
        return Costs(
            model_us=counts["inference_seconds_sum"] / settled / lanes * 1e6,
            encoding_us=self._plan.codec_seconds() * 1e6,
            loop_us=None if before is None or after is None else (after - before) / settled * 1e6,
        )

    def _steady(self, name: str, maximum: Flow, heard: Heard, check: Callable[[], None]) -> Contender:
        # A chosen rate is rounded to two digits.
        rate = self._rate = self._rate or max(1.0, float(f"{maximum.requests_per_second / 2:.2g}"))
        # A rate above the contender's maximum would build a queue, and take many times as long to be answered.
        if rate > maximum.requests_per_second or maximum.unanswered:
            next(self._steps)
            return Contender(name, maximum, None, heard.errors, heard.error)
        pace = Steady(rate, max(1, round(rate * self._plan.order.seconds)))
        sent, more = self._given(f"{name}: {rate:,.0f} a second", pace, check)
        steady = steady_flow(pace, sent, more, time.monotonic())
        return Contender(name, maximum, steady, heard.errors + more.errors, heard.error or more.error)

    def _given(self, what: str, pace: Pace, check: Callable[[], None]) -> tuple[Sent, Heard]:
        """Run one load. After the last request, the answers may take ten times the load's length, or 30 s."""
        self._tell(next(self._steps), what)
        return self._generator.run(pace, check, max(30.0, 10 * self._plan.order.seconds))


@contextmanager
def _sites(plan: Plan) -> Iterator[OpenSite]:
    """Gives each contender a site: a fresh mock broker, because a used one keeps the earlier load, or fresh topics.

    The topics are deleted at the end.
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
        topics.create(name, *own)
        yield Site(kafka, *own, name)

    try:
        yield open_site
    finally:
        if left := topics.close():
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
    screen, rows = table_console(), count(facts["rows_per_request"], "row")
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
    for flow in (each.maximum, each.steady):
        yield f"{flow.requests_per_second:,.0f}{'' if flow.is_paced else ' *'}" if flow else "too many"
    for name in QUANTILES:
        yield f"{each.steady.latency_ms[name]:,.1f}" if each.steady and name in each.steady.latency_ms else "–"


def _judge(figures: Figures) -> None:
    """Raises `Incomplete` if answers are errors or missing."""
    shortfalls = []
    for each in figures.contenders:
        if each.errors:
            codes = ", ".join(f"{number:,} {code}" for code, number in each.errors.items())
            shortfalls.append(f"{each.name}: answers that were errors: {codes}: {each.error}")
        if lost := each.maximum.unanswered + (each.steady.unanswered if each.steady else 0):
            shortfalls.append(f"{each.name}: {lost:,} requests had no answer when the load was given up")
    if shortfalls:
        raise Incomplete("\n".join(shortfalls))
