"""Loads the model of the settings: opens a session on a device, checks the signature, warms the model up.

`load` refuses at start a model that would fail request by request later: a file that is not the pinned one, an axis
that is not the batch, an output that loses rows. Owns nothing; the `Model` owns the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from worker.core.failures import BadConfiguration
from worker.core.tensors.axes import axes_of, check_weight
from worker.core.tensors.buckets import WantedAxis
from worker.core.tensors.signature import Signature
from worker.inference.declared_signature import Declared, declared_by
from worker.inference.fixed_batch import padding_of
from worker.inference.hugging_face import model_in
from worker.inference.model import Model
from worker.inference.model_file import LoadableModel, digest_of, loadable_model
from worker.inference.python_model import PythonSession, open_python
from worker.inference.session import CUDA, Opened, Session, is_accelerated, operators
from worker.inference.warm_up import ALWAYS_RUN, Feeds

if TYPE_CHECKING:
    from worker.settings import BatchingSettings, ModelSettings


def load(
    settings: ModelSettings,
    *,
    max_batch_size: int,
    max_request_rows: int = 65_536,
    wanted_axes: Sequence[WantedAxis] = (),
    max_batch_tokens: int | None = None,
    max_batch_bytes: int | None = None,
) -> Model:
    """Load the model and warm it up in all of its buckets. Raises `BadConfiguration`: one line with the cure."""
    path = model_in(settings.path)
    loadable = loadable_model(path, settings.sha256)
    sha256 = settings.sha256 or digest_of(path)
    providers, wanted, threads = settings.providers, settings.device, settings.intra_op_num_threads
    limit = settings.gpu_mem_limit
    options = settings.provider_options | ({} if limit is None else {f"{CUDA}.gpu_mem_limit": str(limit)})

    def warm(opened: Opened) -> Model:
        declared = declared_by(opened.session, settings, max_request_rows, max_batch_size=max_batch_size)
        axes = axes_of(declared.signature, wanted_axes)
        declared = declared._replace(signature=replace(declared.signature, axes=axes, sha256=sha256.lower()))
        check_weight(declared.signature)
        found = frozenset(operators(opened.session))
        padding = padding_of(opened.session, found, declared, settings, max_batch_size, max_batch_bytes)
        counts = (settings.warm_up_rows or row_counts(opened, max_batch_size)) if padding is None else (padding.rows,)
        model = Model(opened, declared, counts, padding, found, example_of(settings, declared.signature))
        if axes:
            model.warm_up_buckets(max_batch_size, max_batch_tokens, max_batch_bytes)
        return model

    try:
        if loadable.is_python:
            return warm(open_python(settings, loadable.model))
        from worker.inference.custom_ops import libraries  # noqa: PLC0415 - it imports ONNX Runtime
        from worker.inference.device import (  # noqa: PLC0415 - it imports ONNX Runtime
            Unusable,
            check_options,
            open_cpu,
            open_cuda,
            open_named,
        )

        loadable = loadable._replace(custom_ops=libraries(settings.custom_ops))
        check_options(options, wanted, providers)
        if wanted != "auto" or providers:
            return warm(open_named(loadable, wanted, providers, threads, options))
        try:
            return warm(open_cuda(loadable, wanted, threads, options))
        except (Unusable, BadConfiguration) as cause:
            # A model that cannot be run anywhere is refused on the CPU too, with the better message.
            return warm(open_cpu(loadable, threads, f"WORKER_MODEL__DEVICE is auto and CUDA is out: {cause}"))
    except BadConfiguration as refusal:
        raise BadConfiguration(f"{settings.path}: {refusal}") from refusal


def load_as_set(settings: ModelSettings, batching: BatchingSettings) -> Model:
    """Load the model of these settings, for batches within the limits of the BATCHING section."""
    return load(
        settings,
        max_batch_size=batching.max_batch_size,
        max_request_rows=batching.max_request_rows,
        wanted_axes=batching.wanted_axes,
        max_batch_tokens=batching.max_batch_tokens,
        max_batch_bytes=batching.max_batch_bytes,
    )


def row_counts(opened: Opened, max_batch_size: int) -> tuple[int, ...]:
    """The row counts to warm up at: on the CPU two small ones and the largest, on CUDA also the powers of two between.

    On CUDA libraries choose their kernels by the number of rows, and TensorRT builds a new engine for row counts that
    its last one does not span. The warm-up makes them do so before the worker is ready.
    """
    powers = [2**n for n in range(2, max_batch_size.bit_length())] if is_accelerated(opened.session) else []
    return (1, ALWAYS_RUN, *powers, max_batch_size)


def inspect(settings: ModelSettings) -> Declared:
    """Read the model's declaration from its file, on the CPU, without running it. Raises `BadConfiguration`."""
    path = model_in(settings.path)
    loadable = loadable_model(path, settings.sha256)
    try:
        # One row a batch: so a model of exactly one row is not refused, as this depends on the worker's MAX_BATCH_SIZE.
        looked_at = _looked_at(path, loadable, settings.custom_ops)
        return declared_by(looked_at, settings, Signature.max_rows, max_batch_size=1)
    except BadConfiguration as refusal:
        raise BadConfiguration(f"{settings.path}: {refusal}") from refusal


def _looked_at(path: Path, loadable: LoadableModel, custom_ops: Sequence[str]) -> Session:
    if loadable.is_python:
        return PythonSession(path, loadable.model)
    from worker.inference.custom_ops import libraries  # noqa: PLC0415 - it imports ONNX Runtime
    from worker.inference.device import open_cpu  # noqa: PLC0415 - it imports ONNX Runtime

    loadable = loadable._replace(custom_ops=libraries(custom_ops))
    return open_cpu(loadable, 1, "only looked at").session


def example_of(settings: ModelSettings, signature: Signature) -> Feeds | None:
    """Read the operator's example; None without one. Raises `BadConfiguration` for one that does not fit the model."""
    if settings.warm_up_example is None:
        return None
    from worker.inference.example_file import read_example  # noqa: PLC0415 - few have one, and its imports take 10 ms

    may_be_infinite = settings.non_finite_input == "allow"
    return read_example(settings.warm_up_example, signature, may_be_infinite=may_be_infinite)
