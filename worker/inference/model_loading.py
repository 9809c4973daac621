"""From the settings to a warm model: read the file, open a session on a device, check the signature, run the model.

`load` refuses at start what would fail request by request later: a file that is not the pinned one, an axis that is
not the batch, an output that loses rows. Owns nothing; the `Model` owns the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from worker.core.failures import BadConfiguration
from worker.core.tensors.axes import axes_of, check_weight
from worker.core.tensors.buckets import WantedAxis
from worker.core.tensors.signature import Signature
from worker.inference.constant_inputs import with_constants
from worker.inference.declared_signature import check_item_axes, fixed_rows, signature_of
from worker.inference.model import Model
from worker.inference.onnx_file.graph import operators
from worker.inference.onnx_file.item_axes import ITEM_MAKERS
from worker.inference.onnx_file.reading import Graph, digest_of, read
from worker.inference.running.device import (
    CUDA,
    TENSORRT,
    Opened,
    Unusable,
    check_options,
    is_accelerated,
    memory_options,
    open_cpu,
    open_cuda,
    open_named,
)
from worker.inference.running.fixed_batch import Padding
from worker.inference.start_checks.row_independence import TELLING
from worker.inference.start_checks.warm_up import ALWAYS_RUN
from worker.inference.start_checks.warm_up_rows import ExampleRows
from worker.settings import BatchingSettings, ModelSettings

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
PLANNED_ANEW = "on CUDA a convolution is planned anew for a batch of other rows than the one before it"


class Inspected(NamedTuple):
    """What a file says that its model takes and gives, and the only number of rows that it was exported for, if any."""

    signature: Signature
    fixed_rows: int | None


def load(
    settings: ModelSettings,
    *,
    max_batch_size: int,
    max_request_rows: int = 65_536,
    wanted_axes: Sequence[WantedAxis] = (),
    max_batch_tokens: int | None = None,
    max_batch_bytes: int | None = None,
) -> Model:
    """The model of these settings, warm, in all of its buckets. Raises `BadConfiguration`: one line with the cure."""
    graph, settings = _completed(settings)
    sha256 = settings.sha256 or digest_of(settings.path)
    providers, wanted, threads = settings.providers, settings.device, settings.intra_op_num_threads
    options = {**settings.provider_options, **memory_options(settings.gpu_mem_limit)}

    def warm(opened: Opened) -> Model:
        signature = signature_of(opened.session, settings, max_request_rows, graph=graph, max_batch_size=max_batch_size)
        signature = replace(signature, axes=axes_of(signature, wanted_axes), sha256=sha256.lower())
        check_weight(signature)
        found = operators(graph, TELLING | CONVOLUTIONS | ITEM_MAKERS)
        if found & ITEM_MAKERS:
            check_item_axes(opened.session, graph)
        padding = padding_of(opened, found, signature, settings, max_batch_size, max_batch_bytes)
        counts = (settings.warm_up_rows or row_counts(opened, max_batch_size)) if padding is None else (padding.rows,)
        model = Model(opened, signature, counts, padding, found, example_of(settings, signature))
        if signature.axes:
            model.warm_up_buckets(max_batch_size, max_batch_tokens, max_batch_bytes)
        return model

    try:
        check_options(options, wanted, providers)
        if wanted != "auto" or providers:
            return warm(open_named(graph, wanted, providers, threads, options))
        try:
            return warm(open_cuda(graph, wanted, threads, options))
        except (Unusable, BadConfiguration) as cause:
            # A model that cannot be run anywhere is refused on the CPU too, with the better message.
            return warm(open_cpu(graph, threads, f"WORKER_MODEL__DEVICE is auto and CUDA is out: {cause}"))
    except BadConfiguration as refusal:
        raise BadConfiguration(f"{settings.path}: {refusal}") from refusal


def _completed(settings: ModelSettings) -> tuple[Graph, ModelSettings]:
    """The model with its constant inputs, and the settings with the defaults of the others.

    Raises `BadConfiguration`.
    """
    graph = read(settings.path, settings.sha256)
    try:
        graph, left = with_constants(graph, settings.input_defaults)
    except BadConfiguration as refusal:
        raise BadConfiguration(f"{settings.path}: {refusal}") from refusal
    return graph, settings.model_copy(update={"input_defaults": left})


def load_as_set(settings: ModelSettings, batching: BatchingSettings) -> Model:
    """The same, with these batching settings."""
    return load(
        settings,
        max_batch_size=batching.max_batch_size,
        max_request_rows=batching.max_request_rows,
        wanted_axes=batching.wanted_axes,
        max_batch_tokens=batching.max_batch_tokens,
        max_batch_bytes=batching.max_batch_bytes,
    )


def row_counts(opened: Opened, max_batch_size: int) -> tuple[int, ...]:
    """What to warm up at: on the CPU two small ones and the largest; on CUDA the powers of two between them as well.

    On CUDA libraries choose their kernels by the number of rows, and TensorRT builds an engine for row counts that its
    last one does not span: all before the worker is ready.
    """
    powers = [2**n for n in range(2, max_batch_size.bit_length())] if is_accelerated(opened.session) else []
    return (1, ALWAYS_RUN, *powers, max_batch_size)


def padding_of(
    opened: Opened,
    found: frozenset[str],
    signature: Signature,
    settings: ModelSettings,
    max_batch_size: int,
    max_batch_bytes: int | None,
) -> Padding | None:
    """The only number of rows that the model, in which these operators were found, is to run with, if there is one.

    ONNX Runtime keeps one plan for each convolution on CUDA, that of the last run. A ResNet-50 in FP16 took 0.25 s in
    each run of another number of rows, warmed up or not, and 8 ms at 64 rows else (H200, ONNX Runtime 1.31, 2026-11).
    Raises `BadConfiguration` where FULL_BATCHES is `always` and rows differ in their size.
    """
    if (exported := fixed_rows(opened.session)) is not None:
        return Padding(exported, "the model was exported for so many rows", is_exported=True)
    sizes = [spec.row_bytes for spec in signature.inputs]
    row_bytes = None if signature.axes or None in sizes else sum(size or 0 for size in sizes)
    if settings.full_batches == "always":
        if row_bytes is None:
            raise BadConfiguration("WORKER_MODEL__FULL_BATCHES is always, and rows of this model differ in their size")
        why = "WORKER_MODEL__FULL_BATCHES is always"
    elif settings.full_batches == "auto" and row_bytes and found & CONVOLUTIONS and _is_on_cuda(opened):
        why = PLANNED_ANEW
    else:
        return None
    rows = max_batch_size if max_batch_bytes is None else min(max_batch_size, max_batch_bytes // max(1, row_bytes))
    return Padding(rows, why) if rows > 1 else None


def _is_on_cuda(opened: Opened) -> bool:
    """And not under TensorRT, which plans by itself."""
    providers = opened.session.get_providers()
    return CUDA in providers and TENSORRT not in providers


def inspect(settings: ModelSettings) -> Inspected:
    """What the file says of the model: on the CPU, without running it. Raises `BadConfiguration`."""
    graph, settings = _completed(settings)
    try:
        opened = open_cpu(graph, 1, "only looked at")
        # One row to a batch: whether a model of exactly one row can be served depends on the worker's MAX_BATCH_SIZE.
        signature = signature_of(opened.session, settings, Signature.max_rows, graph=graph, max_batch_size=1)
        return Inspected(signature, fixed_rows(opened.session))
    except BadConfiguration as refusal:
        raise BadConfiguration(f"{settings.path}: {refusal}") from refusal


def example_of(settings: ModelSettings, signature: Signature) -> ExampleRows | None:
    """The operator's example; None: there is none. Raises `BadConfiguration` for a file that does not fit the model."""
    if settings.warm_up_example is None:
        return None
    from worker.inference.start_checks.example_file import read_example  # noqa: PLC0415 - few have one, and its imports take 10 ms

    may_be_infinite = settings.non_finite_input == "allow"
    return read_example(settings.warm_up_example, signature, may_be_infinite=may_be_infinite)
