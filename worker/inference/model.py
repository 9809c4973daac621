"""The model: loaded from verified bytes, run once before anybody depends on it, and asked again when in doubt.

`load` refuses at start what would fail request by request later: a file that is not the pinned one, an axis that is
not the batch, an output that loses rows. Owns the session. `Model.run` may be called from several threads at once, and
never raises for what one batch may do to a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import onnxruntime as ort

from worker.core.failures import BadConfiguration, RunFailure
from worker.core.records import Array
from worker.core.tensors.axes import axes_of, check_weight
from worker.core.tensors.buckets import Spot, WantedAxis
from worker.core.tensors.signature import Signature, TensorSpec
from worker.inference.file.graph_file import operators
from worker.inference.file.model_file import read
from worker.inference.fixed_batch import FixedBatch
from worker.inference.inspection import fixed_rows, signature_of
from worker.inference.probing.blanks import Alike, Blank, Feeds, Given
from worker.inference.probing.bucket_checks import BucketChecks
from worker.inference.running.binding import BoundRuns
from worker.inference.running.device import (
    Device,
    Opened,
    Unusable,
    check_options,
    memory_options,
    open_cpu,
    open_cuda,
    open_named,
    plainly,
)
from worker.inference.running.memory import Memory, Unbindable, is_accelerated
from worker.inference.running.ort_errors import ORT_ERRORS, is_out_of_memory, readable, run_failure
from worker.settings import BatchingSettings, ModelSettings

# Operators that reckon one scale from all that they are given, the rows of a whole batch. Those that quantise by blocks
# (MatMulNBits) keep within a row, and those of integers (MatMulInteger and its kind) are given their scales.
BATCH_QUANTISERS = frozenset({"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})

# Sizes tried for dynamic dimensions at warm-up, until the model runs on one. 16: a short text, inside every table of
# positions. 64: an image whose side halves five times. 224: the image classifiers' usual side. 1: what is left.
TRIED_DIMENSIONS = (16, 64, 224, 1)

# The warm-up runs so many rows whatever MAX_BATCH_SIZE is.
ALWAYS_RUN = 2

_BINDING_ERRORS: tuple[type[Exception], ...] = (Unbindable, *ORT_ERRORS)


class Inspected(NamedTuple):
    """What a file says that its model takes and gives, and the only number of rows that it was exported for, if any."""

    signature: Signature
    fixed_rows: int | None


class Model:
    """One loaded model. `device` says where it runs and why, `load` has run it."""

    def __init__(
        self,
        opened: Opened,
        signature: Signature,
        row_counts: Iterable[int],
        fixed_rows: int | None = None,
        batch_quantisers: Sequence[str] = (),
        example: Given | None = None,
    ) -> None:
        """Warms up at these row counts; a model exported for `fixed_rows` runs at no other.

        `batch_quantisers` are its operators that take one scale for all rows of a batch; `example` is what to run.
        Raises `BadConfiguration` when the model fails or loses rows there.
        """
        self._session: ort.InferenceSession = opened.session
        self.device: Device = opened.device
        self.batch_quantisers = tuple(batch_quantisers)
        self.signature = signature  # of the outputs only what the file claims, until they are seen
        self._output_names = [spec.name for spec in signature.outputs]
        self._fixed = None if fixed_rows is None else FixedBatch(fixed_rows, self._output_names)
        self.warmed_up_at = tuple(sorted(set(row_counts)))
        self._probe_rows = self.warmed_up_at[0]
        self._bound: BoundRuns | None = None
        self._example = example
        self._blank: Blank = self._first_that_runs(self._probe_rows) if example is None else self._tried(example)
        self._bound = self._binding_to(opened.memory)
        outputs, *_ = [self._warm_up(rows) for rows in self.warmed_up_at]
        self._is_finite = [_is_finite(output) for output in outputs]
        self.signature = self._seen_with(outputs)
        self.signature = replace(self.signature, axes=self._bucket_checks.axes())
        if self._bound is not None:
            self._bound.let_go()  # this thread is not one of those that will run

    @property
    def fixed_rows(self) -> int | None:
        """The number of rows that every inference has, the padded ones among them; None: as many as are asked for."""
        return None if self._fixed is None else self._fixed.rows

    def most_rows(self, wanted: int) -> int:
        """How many rows of a batch that may have so many the model takes at once."""
        return wanted if self._fixed is None else min(wanted, self._fixed.rows)

    def run(self, feeds: Feeds) -> Sequence[Array] | RunFailure:
        """One inference: arrays of shape (rows, *dims), in the signature's order of outputs, or why there are none.

        The outputs' shapes and values are the model's, unchecked; no later run writes to them. Raises `ModelBroken`
        when the device is lost.
        """
        try:
            return self._outputs(feeds)
        except ORT_ERRORS as error:
            return run_failure(error)

    @property
    def is_accelerated(self) -> bool:
        """Whether it runs on a device that the loop's thread should keep busy, and not wait for."""
        return is_accelerated(self._session)

    def probe(self) -> Sequence[Array] | RunFailure:
        """Run the warm-up batch again: a failure unless it still gives all rows, and finite ones where it gave them."""
        outputs = self.run(self.blank(self._probe_rows))
        if isinstance(outputs, RunFailure):
            return outputs
        for spec, output, was_finite in zip(self.signature.outputs, outputs, self._is_finite, strict=True):
            if output.shape[:1] != (self._probe_rows,):
                return RunFailure(f"output {spec.name}: {self._probe_rows} rows went in, shape {output.shape} came out")
            if was_finite and not _is_finite(output):
                return RunFailure(f"output {spec.name}: NaN or infinity, where it was finite at start")
        return outputs

    @property
    def example_rows(self) -> int:
        """How many rows of its own the operator's example has; 0: there is none."""
        return 0 if self._example is None else self._example.rows

    def blank(self, rows: int, lengths: Mapping[Spot, int] = {}, value: int | None = None) -> Feeds:
        """So many rows as the warm-up ran, of the operator's example, else all zeros or all ones: it runs on them.

        Padded axes are as long as in a bucket. With other `lengths` of dynamic axes, or another `value` where there is
        no example, nobody says that it runs. A mask of zeros may cost less than one of ones.
        """
        of = self._blank if value is None else self._blank.of(value)
        return of.batch(self.signature, rows, lengths)

    def warm_up_buckets(self, max_rows: int, max_tokens: int | None, max_bytes: int | None) -> None:
        """Run each bucket: with one row, and on an accelerator with each number of rows that a batch of it may have.

        Raises `BadConfiguration` for one that the model does not take.
        """
        counts = self.warmed_up_at if self.is_accelerated else ()
        self._bucket_checks.run_each(counts, max_rows, max_tokens, max_bytes)

    @property
    def _bucket_checks(self) -> BucketChecks:
        return BucketChecks(self.signature, self.blank, self._outputs, self._probe_rows)

    def _binding_to(self, memory: Memory | None) -> BoundRuns | None:
        """How to run through I/O binding; None where that is not wanted, or does not give what plain runs give."""
        if memory is None:
            return None
        feeds = self.blank(self._probe_rows)
        try:
            outputs = self._outputs(feeds)
            bound = BoundRuns(self._session, self._seen_with(outputs), memory, self.warmed_up_at[-1])
            bound.check(feeds, outputs)
        except _BINDING_ERRORS as cause:
            self.device = plainly(self.device, readable(cause))
            return None
        return bound

    def _seen_with(self, outputs: Sequence[Array]) -> Signature:
        return replace(self.signature, outputs=tuple(map(_as_seen, self.signature.outputs, outputs)))

    def _outputs(self, feeds: Feeds) -> Sequence[Array]:
        if self._fixed is None:
            return self._exactly(feeds)
        return self._fixed.cut(self._exactly(self._fixed.padded(feeds)), len(next(iter(feeds.values()))))

    def _exactly(self, feeds: Feeds) -> Sequence[Array]:
        if self._bound is not None:
            return self._bound(feeds)
        outputs: Sequence[Array] = self._session.run(self._output_names, feeds)
        return outputs

    def _tried(self, example: Given) -> Given:
        """The example. Raises `BadConfiguration` for one with a row on which the model fails."""
        for at, row in enumerate(example.each()):
            try:
                self._outputs(row.batch(self.signature, self._probe_rows, {}))
            except ORT_ERRORS as error:
                if is_out_of_memory(error):
                    raise BadConfiguration(self._too_large(self._probe_rows, error)) from error
                raise BadConfiguration(
                    f"the model fails on row {at} of WORKER_MODEL__WARM_UP_EXAMPLE, give values that it takes: "
                    f"{readable(error)}"
                ) from error
        return example

    def _first_that_runs(self, rows: int) -> Alike:
        """A batch on which the model runs. Raises `BadConfiguration` with the failure of the first one tried."""
        is_dynamic = any(None in spec.dims for spec in self.signature.inputs)
        dimensions = TRIED_DIMENSIONS if is_dynamic else TRIED_DIMENSIONS[:1]
        failures: list[Exception] = []
        # Zeros first: they are in every table. Ones for a model that divides by its input.
        for blank in [Alike(dimension, value) for value in (0, 1) for dimension in dimensions]:
            try:
                self._outputs(blank.batch(self.signature, rows, {}))
            except ORT_ERRORS as error:
                failures.append(error)
            else:
                return blank
        raise BadConfiguration(self._fails_on_all(rows, failures[0], dimensions)) from failures[0]

    def _fails_on_all(self, rows: int, failure: Exception, dimensions: Sequence[int]) -> str:
        if is_out_of_memory(failure):
            return self._too_large(rows, failure)
        held = (
            ", inputs with a default holding that" if len(self.signature.required) < len(self.signature.inputs) else ""
        )
        is_dynamic = len(dimensions) > 1
        tried = f", with dynamic dimensions of {', '.join(map(str, dimensions))}" if is_dynamic else ""
        sizes = "If it runs at other sizes alone, fix those dimensions in the model (onnx.tools.update_model_dims). "
        return (
            f"the model fails on warm-up batches of zeros and of ones{held}{tried}: "
            f"{readable(failure).rstrip('.')}. {sizes if is_dynamic else ''}{self._other_cures()}"
        )

    def _other_cures(self) -> str:
        """For an encoder of categories that are neither 0 nor 1, and for a number of rows that the file hides."""
        return (
            "If it takes no such values, give it some that it does: WORKER_MODEL__WARM_UP_EXAMPLE, a file of arrays by "
            "name (.npz) or a request (JSON); or export it so that it answers unknown ones, too (scikit-learn: "
            "OneHotEncoder(handle_unknown='ignore')). If a Reshape inside holds a number of rows, export it with a "
            "dynamic one (torch.onnx.export: dynamo=True)"
        )

    def _warm_up(self, rows: int) -> Sequence[Array]:
        try:
            outputs = self._outputs(self.blank(rows))
        except ORT_ERRORS as error:
            raise BadConfiguration(self._too_much(rows, error)) from error
        for spec, output in zip(self.signature.outputs, outputs, strict=True):
            if output.shape[:1] != (rows,):
                raise BadConfiguration(
                    f"output {spec.name}: {rows} rows went in and shape {list(output.shape)} came out, so an answer "
                    "cannot be given back to its request: export the model so that axis 0 of every output is the "
                    "batch, or without this output"
                )
        return outputs

    def _too_much(self, rows: int, error: Exception) -> str:
        if is_out_of_memory(error):
            return self._too_large(rows, error)
        return (
            f"the model runs on fewer rows but fails on {rows}: {readable(error)}. Export it so that it takes any "
            "number of rows: something inside, a Reshape most often, holds one (torch.onnx.export: dynamo=True)"
        )

    def _too_large(self, rows: int, error: Exception) -> str:
        """What to lower. Of the fewest rows that are ever run there is nothing to lower."""
        if self._fixed is not None:
            cure = "export the model for fewer rows, or with a dynamic first axis"
        elif rows > ALWAYS_RUN:
            cure = "lower WORKER_BATCHING__MAX_BATCH_SIZE, and WORKER_MODEL__WARM_UP_ROWS where that is set"
        else:
            cure = "give it more memory, or export the model for smaller inputs"
        return f"not enough memory for {rows} row{'s' if rows > 1 else ''}: {cure} ({readable(error)})"

    def __repr__(self) -> str:
        return f"<Model {self.signature.name} version {self.signature.version} on {self.device.name}>"


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
    graph = read(settings.path, settings.sha256)
    providers, wanted, threads = settings.providers, settings.device, settings.intra_op_num_threads
    options = {**settings.provider_options, **memory_options(settings.gpu_mem_limit, settings.arena_extend_strategy)}

    def warm(opened: Opened) -> Model:
        signature = signature_of(opened.session, settings, max_request_rows, graph=graph, max_batch_size=max_batch_size)
        signature = replace(signature, axes=axes_of(signature, wanted_axes))
        check_weight(signature)
        fixed = fixed_rows(opened.session)
        counts = (settings.warm_up_rows or row_counts(opened, max_batch_size)) if fixed is None else (fixed,)
        quantisers = sorted(operators(graph, BATCH_QUANTISERS))
        model = Model(opened, signature, counts, fixed, quantisers, example_of(settings, signature))
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
            # A model that is at fault itself is at fault on the CPU too, and refused there with the better message.
            return warm(open_cpu(graph, threads, f"WORKER_MODEL__DEVICE is auto and CUDA is out: {cause}"))
    except BadConfiguration as refusal:
        raise BadConfiguration(f"{settings.path}: {refusal}") from refusal


def load_as_set(settings: ModelSettings, batching: BatchingSettings) -> Model:
    """The same, for a worker that batches so."""
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

    There libraries choose their kernels by the number of rows, and TensorRT builds an engine for what its last one does
    not span: all before the worker is ready. What cuDNN plans for a convolution it plans anew for each batch that has
    other rows than the last one had, warmed up or not: ONNX Runtime keeps one plan.
    """
    powers = [2**n for n in range(2, max_batch_size.bit_length())] if is_accelerated(opened.session) else []
    return (1, ALWAYS_RUN, *powers, max_batch_size)


def inspect(settings: ModelSettings) -> Inspected:
    """What the file says of the model: on the CPU, without running it. Raises `BadConfiguration`."""
    graph = read(settings.path, settings.sha256)
    try:
        opened = open_cpu(graph, 1, "only looked at")
        # One row to a batch: whether a model of exactly one can be served is for the worker to say, which has the size.
        signature = signature_of(opened.session, settings, Signature.max_rows, graph=graph, max_batch_size=1)
        return Inspected(signature, fixed_rows(opened.session))
    except BadConfiguration as refusal:
        raise BadConfiguration(f"{settings.path}: {refusal}") from refusal


def example_of(settings: ModelSettings, signature: Signature) -> Given | None:
    """The operator's example. Raises `BadConfiguration` for a file that is none of this model's."""
    if settings.warm_up_example is None:
        return None
    from worker.inference.probing.example_file import read_example  # noqa: PLC0415 - few have one, and its imports take 10 ms

    may_be_infinite = settings.non_finite_input == "allow"
    return read_example(settings.warm_up_example, signature, may_be_infinite=may_be_infinite)


def _is_finite(output: Array) -> bool:
    return output.dtype.kind != "f" or bool(np.isfinite(output).all())


def _as_seen(spec: TensorSpec, output: Array) -> TensorSpec:
    """The output as the model gives it: many a file does not say how many dimensions an output has."""
    if len(spec.dims) == output.ndim - 1:
        return spec
    return replace(spec, dims=(None,) * (output.ndim - 1), symbols=())
