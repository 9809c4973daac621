"""Runs a worker from its settings until it is told to stop, and closes everything in reverse order.

A start checks the cluster (topics, access, limits) and the model (loaded, warmed). A check that fails ends the process
with one line that names the cure. Only then the group is joined. While the cluster is examined and the model's process
loads the model, the modules that serve are imported.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from worker import telemetry
from worker.core.failures import BadConfiguration, ReplyRefused, Stop
from worker.kafka.cluster.examination import examine
from worker.kafka.cluster.survey import losses
from worker.kafka.cluster.topics import Topics
from worker.settings import Settings
from worker.signals import StopSignals, stop_signals

if TYPE_CHECKING:
    from worker.assembled_model import Engine
    from worker.telemetry.tracing import Tracing

# The longest turn by design is a revoke, or leaving a group whose coordinator is away (42 s, measured 2026).
TURN_TIMEOUT = 60.0
# With HOST=thread a turn may include an inference. If that hangs, it must be reported as an inference, so a turn gets
# this much longer.
BEYOND_RUN = 5.0
# Seconds after the drain's deadline for leaving the group, before the watchdog ends the process. With a broker it takes
# milliseconds, and the other members need not wait for a session to end; without one it takes 42 s (measured 2026).
CLOSE_TIMEOUT = 3.0
# Seconds that a collector of spans may take for the last spans. A collector that is away must not hold up a restart.
EXPORT_TIMEOUT = 1.0
# Python's cycle collector, run by default at every 700 new objects, finds nothing here: the last reference frees all
# objects of a record. It cost a quarter of the loop's time (12.6 against 9.0 µs a row, measured 2026).
GC_THRESHOLDS = (50_000, 20, 100)
# How long Python lets a busy thread keep the interpreter. At the default of 5 ms a lane that finishes while the loop is
# busy waits that long to report it: 5.2 ms at the median, 0.64 ms with this (measured 2026).
SWITCH_INTERVAL = 0.0005
# The variable that names the reply topics that refused an answer of the processes that this one replaced. A topic that
# did so twice gets no more answers. The start finds most reasons, such as a lower limit, but not all.
REFUSED = "INFERENCE_WORKER_REFUSED_REPLY_TOPICS"


class Checked(NamedTuple):
    """The findings of a start: the topics, and a model that is being loaded."""

    topics: Topics
    wait_for_model: Callable[[], Engine]


def run(settings: Settings) -> int:
    """Serve until told to stop, and return the exit code. Raises `BadConfiguration` if it cannot start."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    telemetry.configure(settings.telemetry.log_format, settings.telemetry.log_level)
    events = telemetry.WorkerEvents(settings.batching.max_batch_size)
    with stop_signals() as signals:
        return _ended(settings, signals, events)


def _ended(settings: Settings, signals: StopSignals, events: telemetry.WorkerEvents) -> int:
    """Serve, and return the exit code. Logs once why the worker ended. Raises `BadConfiguration` if it cannot start."""
    try:
        with (
            ExitStack() as closing,
            _watchdog(settings, signals, events) as watchdog,  # ends first: closing has its own time limits
        ):
            closing.callback(events.close)
            tracing = _tracing(settings, events, closing)
            _listen(settings, events, closing)
            checked = _checked_beside_imports(settings, events, closing)
            left = _served(settings, checked, signals, events, tracing, watchdog, closing)
    except BadConfiguration:
        raise
    except Stop as stop:
        events.stopped(stop.exit_code, str(stop))
        if isinstance(stop, ReplyRefused) and not signals.stop_asked:
            _start_again(stop.topic)
        return stop.exit_code
    events.stopped(0, f"asked to; {_what_was_left(left)}")
    return 0


def _start_again(refusing: str) -> NoReturn:
    """Replace this process, and remember the topic. A supervisor's start would not know it, and so repeat for ever."""
    os.environ[REFUSED] = f"{os.environ.get(REFUSED, '')} {refusing}"
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  # our own command line


def _refused_twice(replies: Collection[str]) -> dict[str, str]:
    """The reply topics that get no answer, and why."""
    refused = Counter(os.environ.get(REFUSED, "").split())
    return {topic: "it refused two answers of this worker's" for topic in replies if refused[topic] > 1}


def _what_was_left(records: int) -> str:
    if not records:
        return "everything taken is answered and committed"
    return f"{records} of the records taken are left to their next owner, for which there was no time"


def _watchdog(settings: Settings, signals: StopSignals, events: telemetry.WorkerEvents) -> telemetry.Watchdog:
    # A process of the model's own is ended at its limit, and this one goes on.
    run = settings.model.run_timeout_s if settings.model.host == "thread" else None
    return telemetry.Watchdog(
        telemetry.TimeLimits(
            turn=TURN_TIMEOUT if run is None else max(TURN_TIMEOUT, run + BEYOND_RUN),
            run=run,
            stop=settings.delivery.drain_timeout_s + CLOSE_TIMEOUT,
        ),
        heartbeat=lambda: events.heartbeat,
        running_since=lambda: events.running_since,
        stop_asked=lambda: signals.stop_sent,
        report=events.stopped,
    )


def _listen(settings: Settings, events: telemetry.WorkerEvents, closing: ExitStack) -> None:
    """Start the HTTP server. Raises `BadConfiguration`."""
    pages = telemetry.Pages(lambda: events.latest, settings)
    server = telemetry.HttpServer(settings.telemetry.http_address, settings.telemetry.http_port, pages.answer)
    closing.callback(server.close)
    events.page = f"{server.url}/" if settings.telemetry.page else None
    events.noted("http_listening", url=server.url, page=events.page)


def _checked_beside_imports(settings: Settings, events: telemetry.WorkerEvents, closing: ExitStack) -> Checked:
    """Examine the cluster while the model begins to load and the modules that serve are imported.

    Raises `BadConfiguration`.
    """
    with ThreadPoolExecutor(1, "examination") as executor:
        examination = executor.submit(_examined_topics, settings, events)
        from worker.assembled_model import begin_model  # noqa: PLC0415  # see the module's docstring

        wait_for_model = begin_model(settings, events, closing)
        import worker.assembly  # noqa: PLC0415, F401

        topics = examination.result().shutting(_refused_twice(settings.kafka.reply_topics))
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()  # the collector never looks through imported modules
    gc.enable()
    return Checked(topics, wait_for_model)


def _served(
    settings: Settings,
    checked: Checked,
    signals: StopSignals,
    events: telemetry.WorkerEvents,
    tracing: Tracing | None,
    watchdog: telemetry.Watchdog,
    closing: ExitStack,
) -> int:
    """Serve until told to stop. Returns how many records were left to their next owner. Raises `Stop`."""
    from worker.assembly import assemble  # noqa: PLC0415  # imported above

    topics, wait_for_model = checked
    for note in topics.notes:
        events.warned("topic_noted", note=note)
    lost = _on_other_thread(partial(losses, settings.kafka, topics))
    events.noted("cluster_examined", partitions=dict(topics.partitions), membership=str(topics.membership))
    worker = assemble(
        settings, topics, wait_for_model, signals=signals, events=events, tracing=tracing, closing=closing
    )
    for why in lost.result():  # before the worker commits anything
        events.warned("group_has_lost", why=why)
    watchdog.let_begin(worker.leave)
    return worker.run()


def _on_other_thread(work: Callable[[], list[str]]) -> Future[list[str]]:
    """Do the work in a thread of its own."""
    executor = ThreadPoolExecutor(1, "losses")
    found = executor.submit(work)
    executor.shutdown(wait=False)
    return found


def _tracing(settings: Settings, events: telemetry.WorkerEvents, closing: ExitStack) -> Tracing | None:
    """Spans for requests that carry a trace, if wanted. Registered first, so closed last, when all spans have ended."""
    if not settings.telemetry.tracing:
        return None
    from worker.telemetry.tracing import start  # noqa: PLC0415  # an optional extra; a start without tracing need not import it

    tracing = start(settings.kafka.group_id)
    closing.callback(tracing.close, EXPORT_TIMEOUT)
    events.noted("tracing_started")
    return tracing


def _examined_topics(settings: Settings, events: telemetry.WorkerEvents) -> Topics:
    return examine(
        settings.kafka,
        telemetry.kafka_logger(),
        with_transactions=settings.delivery.guarantee == "exactly_once",
        waiting=lambda why: events.warned("broker_awaited", why=why),
    )
