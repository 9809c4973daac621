"""`inference-worker profile`: measures the gain of batching for a model on this device, and says what to set.

It measures the model without Kafka: loads it from the settings, and stacks, runs and splits batches as a worker does.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from worker.app import GC_THRESHOLDS
from worker.assembled_model import batch_policy
from worker.codecs.examples import EncodingName, encodings
from worker.core.batching.limits import Limit
from worker.core.failures import BadConfiguration
from worker.core.tensors.stacking import Stacker
from worker.inference.model import Model
from worker.inference.model_loading import load
from worker.settings.for_commands import ScoringSettings, load_scoring
from worker.terminal.command_line import CLOSING, check_idle, open_axes, with_options
from worker.terminal.terminal import count, print_json, progress, table_console
from worker.tools.options import ProfileOrder
from worker.tools.profile.advice import advise
from worker.tools.profile.buckets import BucketAdvice, axis_of, buckets_for, lengths_of_lines
from worker.tools.profile.report import Profile, show
from worker.tools.profile.sweep import ROUNDS, Bench, Sweep, TooLarge, sweep

# By default sizes double up to so many rows: rows/s level off sooner in every table that we know.
LARGEST = 1024
MOST_ROWS = 65_536  # the largest WORKER_BATCHING__MAX_BATCH_SIZE


def profile(order: ProfileOrder) -> int:
    """Measure and report. Returns 0. Raises `BadConfiguration` for an order that cannot be measured or met."""
    sizes = sizes_of(order)
    if order.lengths is None:
        check_idle("without --lengths", bucket_axis=order.bucket_axis)
    settings = load_scoring(order.config, with_options(os.environ, WORKER_MODEL__PATH=order.model))
    model = _loaded(settings, order)
    buckets = _buckets(order, model, settings)
    blank = model.blank if buckets is None else partial(model.blank, lengths=buckets.at_mean)
    stacker = Stacker(
        model.signature,
        refuse_non_finite_input=settings.model.non_finite_input == "reject",
        refuse_non_finite_output=settings.model.non_finite_output == "error",
    )
    bench = Bench(model.run, blank, stacker, order.rows_per_request, time.perf_counter)
    row = bench.chunk(1)
    policy = replace(batch_policy(settings.batching, model), max_rows=model.most_rows(MOST_ROWS))
    swept = _swept(bench, sizes, policy.limit_of_rows(row.shapes[0], row.sizes[0]), order.seconds)
    axes = {} if buckets else open_axes(model.signature.inputs, row.shapes[0])
    found = Profile(_described(model, settings, order), swept, axes, buckets)
    budget = None if order.latency_budget_ms is None else order.latency_budget_ms / 1000
    try:
        cost = bench.request_cost(EncodingName(order.encoding), order.seconds, swept.sizes[-1].rows)
        found.advice = advise(swept.sizes, cost, order.rows_per_request, order.rate, budget)
    except BadConfiguration as refusal:
        found.refusal = str(refusal)
        raise
    finally:  # the measurements are worth showing even if the budget is too tight
        if order.as_json:
            print_json(found.as_json())
        else:
            show(table_console(), found)
    return 0


def sizes_of(order: ProfileOrder) -> list[int]:
    """Returns the batch sizes in rows, ascending, always with that of one request. Raises `BadConfiguration`."""
    one, text = order.rows_per_request, order.batch_sizes
    if text is None:
        return [size for size in (one << n for n in range(17)) if size <= max(LARGEST, 8 * one) and size <= MOST_ROWS]
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadConfiguration(f"--batch-sizes {text}: expected row counts, comma-separated, such as 1,8,64") from None
    if not all(one <= size <= MOST_ROWS for size in sizes):
        raise BadConfiguration(f"--batch-sizes {text}: expected {one}, the rows of one request, to {MOST_ROWS}")
    return sorted({one, *sizes})


def _loaded(settings: ScoringSettings, order: ProfileOrder) -> Model:
    """Loads the model. Raises `BadConfiguration` if it does not take one request's rows, or not in this encoding."""
    batching, one = settings.batching, order.rows_per_request
    # Two rows show if the model refuses batches. The sweep runs larger ones, and can do without one that fails. Each
    # size runs unpadded: a batch that a worker would pad counts as the size that it is padded to.
    unpadded = settings.model.model_copy(update={"full_batches": "never"})
    rows = min(2, batching.max_batch_size)
    model = load(unpadded, max_batch_size=rows, max_request_rows=batching.max_request_rows)
    gc.set_threshold(*GC_THRESHOLDS)  # as a worker does
    if one > (most := model.most_rows(MOST_ROWS)):
        raise BadConfiguration(
            f"--rows-per-request {one}: the model was exported for {most} rows; give so many or less"
        )
    if order.encoding not in (possible := encodings(model.signature)):
        raise BadConfiguration(f"--encoding {order.encoding}: this model is asked as {' or '.join(possible)}")
    return model


def _buckets(order: ProfileOrder, model: Model, settings: ScoringSettings) -> BucketAdvice | None:
    if order.lengths is None:
        return None
    axis = axis_of(model.signature, order.bucket_axis)
    lengths = lengths_of_lines(order.lengths, order.rows_per_request)
    return buckets_for(axis, lengths, order.buckets, settings.batching.max_batch_size)


def _swept(bench: Bench, sizes: Sequence[int], limit: Limit, seconds: float) -> Sweep:
    """Runs the sweep. It leaves out sizes at which a batch would close before it is full: they would never run."""
    fitting = [size for size in sizes if size <= limit.rows]
    setting, rows = CLOSING.get(limit.why), count(limit.rows, "row")
    why = f"the model was exported for {rows}" if setting is None else f"{setting} closes a batch at {rows}"
    if not fitting:  # a worker would cut each request into pieces
        raise BadConfiguration(f"--rows-per-request {sizes[0]}: {why}; give so many or less, or raise the limit")
    with progress("measuring", ROUNDS * len(fitting)) as tell:
        swept = sweep(bench, fitting, seconds, tell)
    if swept.too_large is None and len(fitting) < len(sizes):
        return swept._replace(too_large=TooLarge(sizes[len(fitting)], why))
    return swept


def _described(model: Model, settings: ScoringSettings, order: ProfileOrder) -> dict[str, Any]:
    return {
        "name": model.signature.name,
        "version": model.signature.version,
        "path": str(settings.model.path),
        "device": model.device.name,
        "why": model.device.reason,
        "threads": settings.model.intra_op_num_threads,
        "request_rows": order.rows_per_request,
        "seconds": order.seconds,
    }
