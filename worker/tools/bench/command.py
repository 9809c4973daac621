"""`inference-worker bench`: the worker under load, from Kafka to Kafka, beside what it is to be compared with.

Results go to standard output, progress to standard error. How it is measured: `turn.py` and `worker/tools/load/`.
"""

from __future__ import annotations

import math
import os
import platform
import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from worker.core.failures import Incomplete
from worker.signals import STOPPING, unwind_when_told
from worker.terminal.terminal import aside, print_json, printable, progress, say
from worker.tools import picture
from worker.tools.bench.columns import PASS_THROUGH
from worker.tools.bench.course import Course, Findings
from worker.tools.bench.options import BenchOrder
from worker.tools.bench.plan import Plan
from worker.tools.bench.plot import draw
from worker.tools.bench.report import Account, accounts_of, document
from worker.tools.bench.screen import show
from worker.tools.bench.turn import Place, Setup, Turn
from worker.tools.kafka.own_topics import OwnTopics
from worker.tools.load.generator import Generator
from worker.tools.load.places import Cluster, Mock, kept_by_mock
from worker.version import VERSION

# Of a closed loop's window, where the broker would keep more.
_MOST = 10_000


def bench(order: BenchOrder) -> int:
    """0 when all was measured and no answer was an error.

    Raises `BadConfiguration` for what cannot be begun, `Incomplete` when it was interrupted or answers were errors, and
    whatever ends a contender.
    """
    if order.plot is not None:
        picture.check(order.plot)
    plan = Plan(order, os.environ)
    facts = _facts(plan)
    found, is_whole = _measure(plan)
    accounts = accounts_of(found, [plan.part(column) for column in plan.columns])
    if found.maxima:
        _report(order, accounts, facts)
    _judge(accounts, is_whole=is_whole)
    return 0


def _measure(plan: Plan) -> tuple[Findings, bool]:
    unwind_when_told()  # so that no process and no topic is left behind
    course: Course | None = None
    try:
        with ExitStack() as stack:
            place = stack.enter_context(_place(plan))
            generator = stack.enter_context(Generator(plan.requests))
            setup = _setup(plan, place)
            course = Course(partial(Turn, setup, generator), plan.columns, plan.rates, plan.order.rounds)
            with progress("starting", course.steps) as tell:
                course.run(tell)
    except KeyboardInterrupt:
        return course.found() if course else Findings({}, {}, ()), False
    return course.found(), True


def _setup(plan: Plan, place: Place) -> Setup:
    kept = kept_by_mock(plan.request_bytes) if plan.is_embedded else math.inf
    most = int(min(_MOST, kept))
    return Setup(
        place=place,
        start=plan.start,
        seconds=plan.order.seconds,
        rows=plan.order.rows_per_request,
        request_bytes=plan.request_bytes,
        least=min(most, plan.least_window),
        most=most,
        kept=kept,
    )


@contextmanager
def _place(plan: Plan) -> Iterator[Place]:
    if plan.is_embedded:
        yield Mock(plan.settings.kafka.config)
        return
    prefix = f"{plan.prefix}-{secrets.token_hex(4)}"
    topics = OwnTopics(plan.settings.kafka, prefix, plan.partitions)
    try:
        yield Cluster(plan.settings.kafka, topics, prefix)
    finally:
        found = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
        left = topics.close()  # a second Ctrl-C would leave them behind
        for number, handler in found.items():
            signal.signal(number, handler)
        if left:
            say(aside(), f"these topics could not be deleted: {printable(', '.join(left))}")


def _facts(plan: Plan) -> dict[str, Any]:
    order, kafka = plan.order, plan.settings.kafka
    return {
        "version": VERSION,
        "broker": {
            "is_embedded": plan.is_embedded,
            "bootstrap_servers": None if plan.is_embedded else kafka.bootstrap_servers,
            "partitions": plan.partitions,
        },
        "maximum_of": "window" if plan.is_embedded else "backlog",
        "model": {"name": plan.settings.model.name, "path": str(plan.settings.model.path)},
        "request": {
            "encoding": plan.encoding.value,
            "rows": order.rows_per_request,
            "bytes": plan.request_bytes,
            "open_axes": {axis: span._asdict() for axis, span in plan.open_axes.items()},
        },
        "replicas": order.replicas,
        "rounds": order.rounds,
        "seconds": order.seconds,
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processors": os.cpu_count(),
            "load_average": round(os.getloadavg()[0], 2),
            "python": platform.python_version(),
        },
    }


def _report(order: BenchOrder, accounts: tuple[Account, ...], facts: dict[str, Any]) -> None:
    if order.plot is not None:
        picture.save(order.plot, lambda empty: draw(empty, accounts))
    if order.as_json:
        print_json(document(accounts, facts))
    else:
        show(accounts, facts)


def _judge(accounts: tuple[Account, ...], *, is_whole: bool) -> None:
    """Raises `Incomplete` for what was asked for and is missing."""
    shortfalls = [] if is_whole else ["interrupted: the figures are of what was measured until then"]
    for account in accounts:
        if account.errors and account.part.column != PASS_THROUGH:
            codes = ", ".join(f"{count:,} {code}" for code, count in account.errors.items())
            shortfalls.append(f"{account.part.column.name}: answers that were errors: {codes}: {account.error}")
    if shortfalls:
        raise Incomplete("\n".join(shortfalls))
