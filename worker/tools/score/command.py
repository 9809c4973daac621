"""`inference-worker score`: answers a file without Kafka, as the worker would.

    RowFile, lines ──portion──▶ Scorer, in threads ──outcomes──▶ Results

Python works on one portion while the model runs another. Answers go to standard output or a file, everything else to
standard error.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from threading import Event

from worker.app import GC_THRESHOLDS
from worker.codecs.records.served import ANSWER
from worker.codecs.wire_contract import JSON, OCTETS
from worker.core.failures import BadConfiguration, Incomplete
from worker.core.records import Partition
from worker.inference.model import Model
from worker.inference.row_independence import independence
from worker.scored_model import HostedModel, load_to_score
from worker.scorer import Scorer, parts_as_json
from worker.settings.for_commands import ScoringSettings, load_scoring
from worker.signals import STOPPING
from worker.terminal.command_line import with_options
from worker.terminal.terminal import aside, count, progress, say
from worker.tools.lines import content, lines
from worker.tools.options import ScoreOrder
from worker.tools.score.inputs import ACCEPT_JSON, LINE_HEADERS, ReadLine, RowFile, line_portions, plain, whole
from worker.tools.score.outputs import Results, results_for
from worker.tools.score.portions import Portion, Scored, scored
from worker.tools.score.tables import TABLES, from_texts

# Limits of a portion. Batches: a small model answers 64 rows in 60 µs, and handing a portion to a thread and back costs
# as much. Seconds of the model: Ctrl-C should work soon. Bytes of rows: more would leave the processor's cache before
# their turn comes.
PORTION_BATCHES, PORTION_SECONDS, PORTION_BYTES = 16, 0.05, 1024 * 1024
# Seconds for which Python lets a busy thread keep the interpreter. At its default of 5 ms a lane waits between two
# inferences, which costs 15 to 20 % of the speed (measured 2026).
SWITCH_INTERVAL = 0.0005


def score(order: ScoreOrder) -> int:
    """Score the file. Returns 0 if all rows or lines have results. Raises `Incomplete` if not, or whatever stops it."""
    order.check()
    options = {"WORKER_MODEL__PATH": order.model, "WORKER_BATCHING__MAX_BATCH_SIZE": order.batch_size}
    settings = _fitted(order, load_scoring(order.config, with_options(os.environ, **options)))
    with ExitStack() as closing:
        model = load_to_score(settings, closing)
        gc.set_threshold(*GC_THRESHOLDS)  # as a worker does
        _caution(model, settings.batching.max_batch_size)
        began, scorer = time.monotonic(), _scorer(order, model, settings, closing)
        portions, total = _portions(order, scorer, settings, closing)
        results = closing.enter_context(
            results_for(order, scorer.signature, scorer.codec.messages, _columns(settings, scorer))
        )
        with _bar(order, total) as show, _stop_signal() as is_stopped:
            for outcomes in _ahead(portions, scorer, settings.batching.lanes + 1, is_stopped):
                results.write(outcomes)
                show(results.outcomes)
        results.is_complete = not is_stopped.is_set() or results.outcomes == total
    seconds, answered = time.monotonic() - began, count(results.outcomes, results.unit)
    if results.passed_over:
        say(aside(), f"{count(results.passed_over, results.unit)} of another kind passed over ([records] only)")
    say(aside(), f"{answered} in {seconds:,.1f} s: {results.outcomes / seconds:,.0f} a second")
    share = f"the model ran {scorer.seconds / seconds:.0%} of the time"
    say(aside(), f"{count(scorer.batches, 'batch', 'es')} on {model.device.name}; {share}")
    _judge(results, total)
    return 0


def _scorer(order: ScoreOrder, model: Model | HostedModel, settings: ScoringSettings, closing: ExitStack) -> Scorer:
    if order.whole and settings.records is not None and settings.records.encoding == "registry":
        from worker.tools.score.framed import framed_parts  # noqa: PLC0415  # the registry's client is an extra

        return Scorer(model, settings, partial(framed_parts, order.config, settings, closing))
    reader_of = from_texts if order.is_table else None
    return Scorer(model, settings, partial(parts_as_json, settings, reader_of=reader_of))


def _columns(settings: ScoringSettings, scorer: Scorer) -> Sequence[str] | None:
    """The fields of an answer to a record, if they are known before it is made."""
    names = [spec.name for spec in scorer.signature.outputs]
    if settings.records is None or scorer.mapping is None or scorer.mapping.keep == "all":
        return None
    is_made = settings.records.functions is not None and ANSWER in names
    return None if is_made else [*scorer.mapping.keep, *names]


def _ahead(portions: Iterator[Portion], scorer: Scorer, threads: int, is_stopped: Event) -> Iterator[Sequence[Scored]]:
    """Yields the outcomes of all portions, in order. When the operator stops it, begun ones are finished."""
    waiting = deque[Future[Sequence[Scored]]]()

    with ThreadPoolExecutor(threads) as pool:
        for portion in portions:
            if is_stopped.is_set():
                break
            if portion:
                waiting.append(pool.submit(scored, scorer, portion))
            while len(waiting) > (threads if portion else 0):  # an empty portion means a silent pipe: finish all
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def _stop_signal() -> Iterator[Event]:
    """Yields an event that the first signal sets. The second signal ends the process at once, even in an inference."""
    is_stopped, interval = Event(), sys.getswitchinterval()

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        is_stopped.set()

    found = {number: signal.signal(number, stop) for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN}
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield is_stopped
    finally:
        sys.setswitchinterval(interval)
        for number, handler in found.items():
            signal.signal(number, handler)


def _portions(
    order: ScoreOrder, scorer: Scorer, settings: ScoringSettings, closing: ExitStack
) -> tuple[Iterator[Portion], int | None]:
    """Returns the portions to score, and the number of rows; None for lines, whose number is not known."""

    def batches() -> int:
        return max(1, int(min(PORTION_BATCHES, PORTION_SECONDS * scorer.batches / (scorer.seconds or 1))))

    batch = scorer.policy.max_rows
    if not order.is_array:
        found, longest = _lines(order, settings, closing), settings.kafka.max_request_bytes
        return line_portions(found, _reader(order, settings), longest, lambda: batches() * batch), None
    rows = RowFile(order.file, order.name, scorer.signature, OCTETS if order.wants_arrays else JSON)
    most, most_rows = max(1, PORTION_BYTES // (batch * rows.row_bytes)), settings.batching.max_request_rows
    return rows.portions(lambda: min(most_rows, min(most, batches()) * batch)), rows.total


def _reader(order: ScoreOrder, settings: ScoringSettings) -> ReadLine:
    """The function that makes a record of a line. Answers are lines, too, so a request asks for one that is JSON."""
    of_requests = settings.records is None
    if order.whole:
        return partial(whole, Partition(order.name, 0), ACCEPT_JSON if of_requests else ())
    return partial(plain, Partition(order.name, 0), LINE_HEADERS if of_requests else ())


def _lines(order: ScoreOrder, settings: ScoringSettings, closing: ExitStack) -> Iterator[bytes | None]:
    """The lines of a file, or of a table; or all of a file whose bytes are one value, such as a picture."""
    if order.is_table:
        return TABLES[order.file.suffix](order.file, order.name)
    file = 0 if order.is_piped else closing.enter_context(order.file.open("rb", buffering=0)).fileno()
    if settings.records is not None and settings.records.encoding == "bytes" and not order.whole:
        return iter([content(file, order.name)])
    return lines(file, order.name)


def _fitted(order: ScoreOrder, settings: ScoringSettings) -> ScoringSettings:
    """The settings for this file; a table has no envelopes. Raises `BadConfiguration` if they cannot score it."""
    if settings.records is None:
        if order.is_table:
            raise BadConfiguration(f"{order.name}: the rows of a table are records: map them in a table [records]")
        return settings
    if order.is_array:
        raise BadConfiguration(
            f"{order.name}: has rows of numbers, and [records] maps records: give JSON lines, a CSV or a Parquet file, "
            "or settings without [records]"
        )
    if not order.is_table:
        return settings
    return settings.model_copy(update={"records": settings.records.model_copy(update={"envelope": None})})


def _caution(model: Model | HostedModel, max_batch_size: int) -> None:
    """Warn if rows in one batch change each other's results. That is no refusal: scoring is the way to compare."""
    try:
        found = model.facts.independence if isinstance(model, HostedModel) else independence(model, max_batch_size)
        why = found.why
    except BadConfiguration as refusal:
        why = str(refusal)
    if why is not None:
        say(aside(), f"warning: {why}; here: --batch-size 1")


def _bar(order: ScoreOrder, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
    if order.output is None and sys.stdout.isatty():
        return nullcontext(lambda _: None)  # the answers fill the screen, so there is no place for a bar
    return progress(f"{order.unit}s", total)


def _judge(results: Results, total: int | None) -> None:
    """Raises `Incomplete` unless everything was scored and has its result."""
    found = []
    if not results.is_complete:
        of_all = f" of {total:,}" if total else ""
        found.append(f"stopped after {count(results.outcomes, results.unit)}{of_all}")
    if results.refused:
        by_code = ", ".join(
            f"{many:,} {code} (first: {results.unit} {first:,})" for code, (many, first) in results.refused.items()
        )
        refusals = sum(many for many, _ in results.refused.values())
        found.append(f"{refusals:,} of {count(results.outcomes, results.unit)} refused: {by_code}")
    if found:
        raise Incomplete("\n".join(found))
