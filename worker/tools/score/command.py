"""`inference-worker score`: a file through the model, without Kafka, as the worker would answer it.

Answers go to standard output or a file, everything else to standard error. What is read and written how is decided in
`worker.tools.score.jobs`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

from worker.core.failures import BadConfiguration, Incomplete, Stop
from worker.inference import Model, independence, load_as_set
from worker.settings.for_commands import load_scoring
from worker.signals import stop_signals
from worker.terminal.command_line import with_options
from worker.terminal.terminal import aside, count, progress, say
from worker.tools.score.jobs import Job, open_job
from worker.tools.score.options import ScoreOrder
from worker.tools.score.results import ScoreCounts
from worker.tools.score.scorer import Scorer


def score(order: ScoreOrder) -> int:
    """0 when every row or line has its result. Raises `Incomplete` when some have none, and whatever stops it."""
    order.check()
    options = {"WORKER_MODEL__PATH": order.model, "WORKER_BATCHING__MAX_BATCH_SIZE": order.batch_size}
    settings = load_scoring(order.config, with_options(os.environ, **options))
    batching = settings.batching
    loaded = load_as_set(settings.model, batching)
    _caution(loaded, batching.max_batch_size)
    began = time.monotonic()
    with stop_signals() as signals:
        scorer = Scorer(loaded, settings, ScoreCounts(batching.max_batch_size), signals)
        with _ended(scorer), ExitStack() as closing:
            job = open_job(order, scorer, settings, partial(say, aside()), closing)
            with _bar(order, job) as scorer.counts.show:
                is_complete = job.run()
    _summarize(job, scorer.counts, loaded.device.name, time.monotonic() - began)
    _judge(job, scorer.counts, is_complete=is_complete)
    return 0


def _caution(model: Model, max_batch_size: int) -> None:
    """Say where rows that share a batch get one another's results. It is no refusal: scoring is how to compare."""
    try:
        why = independence(model, max_batch_size).why
    except BadConfiguration as refusal:
        why = str(refusal)
    if why is not None:
        say(aside(), f"warning: {why}; here: --batch-size 1")


@contextmanager
def _ended(scorer: Scorer) -> Iterator[None]:
    try:
        yield
    except Stop as stop:
        if not scorer.close():
            # The interpreter's own end would kill that thread in the middle of native code, and abort (SIGABRT).
            say(aside(), f"inference-worker: {stop}")
            sys.stderr.flush()
            os._exit(stop.exit_code)
        raise
    scorer.close()


def _bar(order: ScoreOrder, job: Job) -> AbstractContextManager[Callable[[int], None]]:
    if order.output is None and sys.stdout.isatty():
        return nullcontext(lambda _: None)  # answers scroll by where the bar would be
    return progress(f"{job.unit}s", job.total)


def _summarize(job: Job, counts: ScoreCounts, device: str, seconds: float) -> None:
    say(aside(), f"{count(counts.outcomes, job.unit)} in {seconds:,.1f} s: {counts.outcomes / seconds:,.0f} a second")
    share = counts.model_seconds / seconds
    say(aside(), f"{count(counts.batches, 'batch', 'es')} on {device}; the model ran {share:.0%} of the time")
    if written := [str(path) for path in job.outputs if path.is_file()]:
        say(aside(), f"written: {', '.join(written)}")


def _judge(job: Job, counts: ScoreCounts, *, is_complete: bool) -> None:
    """Raises `Incomplete` unless everything was asked and has its result."""
    found = []
    if not is_complete:
        of_all = f" of {job.total:,}" if job.total else ""
        found.append(f"stopped after {count(counts.outcomes, job.unit)}{of_all}")
    if counts.refused:
        by_code = ", ".join(
            f"{many:,} {code} (first: {job.unit} {first:,})" for code, (many, first) in counts.refused.items()
        )
        found.append(f"{counts.refusals:,} of {count(counts.outcomes, job.unit)} refused: {by_code}")
    if found:
        raise Incomplete("\n".join(found))
