"""`inference-worker profile`: what batching buys with this model on this device, and what to set.

The model alone, without Kafka: loaded from the settings as a worker loads it, stacked, run and split as a worker does.
`engine/` measures and advises; here it meets the model, the clock and the terminal.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from worker.app import GC_THRESHOLDS
from worker.assembly import batch_policy
from worker.core.batching.limits import Limit
from worker.core.failures import BadConfiguration
from worker.core.records import ClosedBy
from worker.core.tensors.buckets import tokens
from worker.inference import Model, load
from worker.settings.for_commands import ScoringSettings, load_scoring
from worker.terminal.command_line import CLOSING, with_options
from worker.terminal.open_axes import open_axes
from worker.terminal.terminal import count, page, print_json, progress
from worker.tools import picture
from worker.tools.profile.engine.advice import Need, advise
from worker.tools.profile.engine.costs import TRANSPORT_SECONDS, MeasuredCosts
from worker.tools.profile.engine.forecast import Forecaster
from worker.tools.profile.engine.knee import knee
from worker.tools.profile.engine.sweep import ROUNDS, Bench, Sweep, TooLarge, sweep
from worker.tools.profile.lengths_command import Benches, advise_buckets, has_sample
from worker.tools.profile.options import ProfileOrder
from worker.tools.profile.plot import draw
from worker.tools.profile.report import Profile, Subject
from worker.tools.profile.screen import show

# The sizes double up to so many rows, unless others are asked for: in every table that we know, the knee comes sooner.
LARGEST = 1024
MOST_ROWS = 65_536  # of WORKER_BATCHING__MAX_BATCH_SIZE


def profile(order: ProfileOrder) -> int:
    """0. Raises `BadConfiguration` for what cannot be measured or met."""
    need, sizes, has_lengths = need_of(order), sizes_of(order), has_sample(order)
    transport = TRANSPORT_SECONDS if order.transport_ms is None else order.transport_ms / 1000
    if order.plot is not None:
        picture.check(order.plot)
    settings = load_scoring(order.config, with_options(os.environ, WORKER_MODEL__PATH=order.model))
    model = _loaded(settings, sizes[0])
    benches = Benches(model, settings, order.rows_per_request, order.seconds)
    buckets = advise_buckets(order, benches, need, transport) if has_lengths else None
    bench = benches.plain() if buckets is None else benches.at(buckets.axis, buckets.mean_padded)
    row = bench.requests(1)[0]
    policy = replace(batch_policy(settings.batching, model), max_rows=model.most_rows(MOST_ROWS))
    limit = policy.limit_of_rows(row.shapes, row.size)
    _check_limit(sizes[0], limit, {ClosedBy.BYTES: row.size, ClosedBy.TOKENS: tokens(row.shapes)})
    swept = _swept(bench, sizes, limit, order.seconds)
    found = Profile(
        _subject(model, settings, order),
        swept.sizes,
        swept.too_large,
        knee({size.rows: size.rows_per_s for size in swept.sizes}),
        transport,
        buckets=buckets,
        open_axes=open_axes(model.signature.inputs, row.shapes),
    )
    try:
        if need is not None:
            forecasts = Forecaster(MeasuredCosts(swept.sizes), transport, order.rows_per_request)
            found.advice = advise(need, [size.rows for size in swept.sizes], forecasts)
    except BadConfiguration as refusal:
        found.refusal = str(refusal)
        raise
    finally:  # a budget that is too tight makes no measurement worthless
        _tell(found, order)
    return 0


def _loaded(settings: ScoringSettings, one: int) -> Model:
    """Raises `BadConfiguration` for a model that does not take the rows of one request."""
    batching = settings.batching
    # Two rows show what a model refuses; larger batches are run by the sweep, which can do without one that fails.
    rows = min(2, batching.max_batch_size)
    # Each size is run as it is: what a worker would pad is measured at the size that it pads to.
    unpadded = settings.model.model_copy(update={"full_batches": "never"})
    model = load(unpadded, max_batch_size=rows, max_request_rows=batching.max_request_rows)
    gc.set_threshold(*GC_THRESHOLDS)  # as a worker does
    if one > (most := model.most_rows(MOST_ROWS)):
        raise BadConfiguration(
            f"--rows-per-request {one}: the model was exported for {most} rows; give so many or less"
        )
    return model


def need_of(order: ProfileOrder) -> Need | None:
    """Raises `BadConfiguration` for half of one."""
    if order.rate is None and order.latency_budget_ms is None:
        return None
    if order.rate is None or order.latency_budget_ms is None:
        raise BadConfiguration("--rate and --latency-budget-ms go together: advice needs both")
    if not (math.isfinite(order.rate) and math.isfinite(order.latency_budget_ms)):
        raise BadConfiguration("--rate and --latency-budget-ms are numbers, and no infinities")
    return Need(order.rate, order.latency_budget_ms / 1000)


def sizes_of(order: ProfileOrder) -> list[int]:
    """Rows of a batch, ascending; one request's are always among them. Raises `BadConfiguration`."""
    one = order.rows_per_request
    if order.batch_sizes is None:
        return [size for size in (one << n for n in range(17)) if size <= max(LARGEST, 8 * one) and size <= MOST_ROWS]
    return sorted({one, *_numbers(order.batch_sizes, one)})


def _tell(found: Profile, order: ProfileOrder) -> None:
    if order.plot is not None:
        picture.save(order.plot, lambda empty: draw(empty, found))
    if order.as_json:
        print_json(found.as_json())
    else:
        show(page(), found)


def _swept(bench: Bench, sizes: Sequence[int], limit: Limit, seconds: float) -> Sweep:
    """A batch that would close before it has its rows is not measured: it would never run."""
    fitting = [size for size in sizes if size <= limit.rows]
    with progress("measuring", ROUNDS * len(fitting)) as tell:
        swept = sweep(bench, fitting, seconds, tell)
    if swept.too_large is None and len(fitting) < len(sizes):
        return swept._replace(too_large=TooLarge(sizes[len(fitting)], _why(limit)))
    return swept


def _why(limit: Limit) -> str:
    setting = CLOSING.get(limit.why)
    rows = count(limit.rows, "row")
    return f"the model was exported for {rows}" if setting is None else f"{setting} closes a batch at {rows}"


def _check_limit(one: int, limit: Limit, weights: Mapping[ClosedBy, int]) -> None:
    """Raises `BadConfiguration` where a worker would cut each request in pieces: then no batch runs as measured."""
    if one > limit.rows:
        raise BadConfiguration(
            f"--rows-per-request {one}: {_why(limit)}; give so many or less, or raise it to "
            f"{one * weights[limit.why]} or more"
        )


def _subject(model: Model, settings: ScoringSettings, order: ProfileOrder) -> Subject:
    return Subject(
        model.signature.name,
        model.signature.version,
        str(settings.model.path),
        model.device.name,
        model.device.reason,
        settings.model.intra_op_num_threads,
        order.rows_per_request,
        order.seconds,
    )


def _numbers(text: str, least: int) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadConfiguration(f"--batch-sizes {text}: expected row counts, comma-separated, such as 1,8,64") from None
    for number in numbers:
        if not least <= number <= MOST_ROWS:
            raise BadConfiguration(
                f"--batch-sizes {text}: {number} is not between {least}, the rows of one request, and {MOST_ROWS}"
            )
    return numbers
