"""A loaded model: the lanes run it, and a probe runs it again when its device is in doubt.

`model_loading.load` makes it. It owns the session. Several threads may call `Model.run` at once. A failure that one
batch can cause is returned, not raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from worker.core.failures import Code, RowsLost, RunFailure, listed
from worker.core.records import Array
from worker.core.tensors.buckets import Spot
from worker.core.tensors.specs import TensorSpec
from worker.inference.bucket_checks import BucketChecks
from worker.inference.declared_signature import Declared
from worker.inference.facts import Device, Padding, most_rows
from worker.inference.onnxruntime_errors import run_failure
from worker.inference.session import CPU, CUDA, RUN_ERRORS, Opened, is_accelerated, operators
from worker.inference.warm_up import Feeds, WarmUp, is_finite

# Operators whose output has as many items as they find.
ITEM_MAKERS = frozenset({"Compress", "NonZero", "NonMaxSuppression", "Unique", "StringSplit"})


class Model:
    """A loaded model that has run its warm-up. `device` says where it runs, and why."""

    def __init__(
        self,
        opened: Opened,
        declared: Declared,
        row_counts: Iterable[int],
        padding: Padding | None = None,
        operators: frozenset[str] = frozenset(),
        example: Feeds | None = None,
    ) -> None:
        """Warms the model up at these row counts, with the operator's example if there is one.

        With a `padding` every run has the padding's number of rows. Raises `BadConfiguration` when the model fails or
        loses rows in the warm-up.
        """
        self._session = opened.session
        self._giving_back = _giving_back(opened.session)
        self.device: Device = opened.device
        self.operators = operators
        signature = self.signature = declared.signature  # outputs as the file claims, until the warm-up
        self._constants = dict(declared.constants)
        self._output_names = [spec.name for spec in signature.outputs]
        self.padding = padding
        self.warmed_up_at = tuple(sorted(set(row_counts)))
        self._probe_rows = self.warmed_up_at[0]
        warm_up = WarmUp(signature, self._outputs, is_fixed=padding is not None and padding.is_exported)
        self._blank = warm_up.rows_that_run(example, self._probe_rows)
        outputs, *_ = [warm_up.outputs(self._blank, rows) for rows in self.warmed_up_at]
        self._is_finite = [is_finite(output) for output in outputs]
        is_fixed = not any(None in spec.dims for spec in signature.inputs)
        seen = [_as_seen(*pair, is_fixed=is_fixed) for pair in zip(signature.outputs, outputs, strict=True)]
        self.remark = _remark(declared, operators)
        self.signature = replace(signature, outputs=tuple(seen))
        self.signature = replace(self.signature, axes=self._bucket_checks.axes())

    def most_rows(self, wanted: int) -> int:
        """The most rows of one run, where a batch may have `wanted` rows."""
        return most_rows(self.padding, wanted)

    def run(self, feeds: Feeds) -> Sequence[Array] | RunFailure:
        """Run one inference. Returns arrays of shape (rows, *dims) in the signature's order of outputs, or the failure.

        A run that lacks memory on a GPU is tried once more, after unused memory has been given back. The outputs are
        unchecked, and no later run writes to them. Raises `DeviceLost`.
        """
        outcome = self._outcome(feeds)
        lacks_memory = isinstance(outcome, RunFailure) and outcome.code is Code.RESOURCE_EXHAUSTED
        if self._giving_back is None or not lacks_memory:
            return outcome
        self._outcome(self.blank(self._probe_rows), self._giving_back)
        return self._outcome(feeds)

    @property
    def is_accelerated(self) -> bool:
        """True if the model runs on a GPU: the loop's thread should keep that busy, and not wait for it."""
        return is_accelerated(self._session)

    @property
    def left_to_cpu(self) -> Mapping[str, int]:
        """The nodes that the CPU runs for a model on a GPU, counted by operator: their tensors are copied both ways."""
        return dict(Counter(operators(self._session, CPU)).most_common()) if self.is_accelerated else {}

    def probe(self) -> Sequence[Array] | RunFailure:
        """Run the warm-up batch again. Lost rows are a failure, and so is an output that is not finite any more."""
        outputs = self.run(self.blank(self._probe_rows))
        if isinstance(outputs, RunFailure):
            return outputs
        for spec, output, was_finite in zip(self.signature.outputs, outputs, self._is_finite, strict=True):
            if output.shape[:1] != (self._probe_rows,):
                return RunFailure(str(RowsLost(spec.name, self._probe_rows, output.shape)))
            if was_finite and not is_finite(output):
                return RunFailure(f"output {spec.name}: NaN or infinity, where it was finite at start")
        return outputs

    @property
    def example_rows(self) -> int:
        """The number of rows in the operator's example; 0 without one."""
        return self._blank.rows if self._blank.is_example else 0

    def blank(self, rows: int, lengths: Mapping[Spot, int] = {}) -> Feeds:
        """So many rows that the model runs on: the operator's example repeated, else rows of zeros or of ones.

        Padded axes are as long as in a bucket. With other `lengths` of dynamic axes the model may fail.
        """
        return self._blank.batch(self.signature, rows, lengths)

    def warm_up_buckets(self, max_rows: int, max_tokens: int | None, max_bytes: int | None) -> None:
        """Run each bucket: on the CPU at the smallest row count, on a GPU at each one that its batches may have.

        Raises `BadConfiguration` for a bucket that the model does not take.
        """
        counts = self.warmed_up_at if self.is_accelerated else ()
        self._bucket_checks.run_each(counts, max_rows, max_tokens, max_bytes)

    @property
    def _bucket_checks(self) -> BucketChecks:
        return BucketChecks(self.signature, self.blank, self._outputs, self._probe_rows)

    def _outcome(self, feeds: Feeds, options: Any = None) -> Sequence[Array] | RunFailure:
        try:
            return self._outputs(feeds, options)
        except RUN_ERRORS as error:
            return run_failure(error)

    def _outputs(self, feeds: Feeds, options: Any = None) -> Sequence[Array]:
        """Run the session plainly, without binding, on a GPU too: docs/decisions.md says why."""
        if self.padding is None:
            return self._session.run(self._output_names, {**feeds, **self._constants}, options)
        padded = self.padding.padded(feeds)
        outputs = self._session.run(self._output_names, {**padded, **self._constants}, options)
        return self.padding.cut(outputs, self._output_names, len(next(iter(feeds.values()))))

    def __repr__(self) -> str:
        return f"<Model {self.signature.name} version {self.signature.version} on {self.device.name}>"


def _as_seen(spec: TensorSpec, output: Array, *, is_fixed: bool) -> TensorSpec:
    """Correct an output's spec by an output that was seen: some files omit its number of dimensions, or get it wrong.

    A dimension that the file gets wrong takes the size that was seen if all inputs are of fixed size, else any size.
    """
    if len(spec.dims) != output.ndim - 1:
        return replace(spec, dims=(None,) * (output.ndim - 1), symbols=())
    came = zip(spec.dims, output.shape[1:], strict=True)
    return replace(spec, dims=tuple(dim if dim in (None, n) else n if is_fixed else None for dim, n in came))


def _remark(declared: Declared, operators: frozenset[str]) -> str | None:
    """A remark on a model that works, but would be safer after another export; None: there is nothing to say."""
    makers = ", ".join(sorted(operators & ITEM_MAKERS))
    if not makers or not declared.item_axes:
        return None
    return (
        f"the model has {makers} inside, and calls the first axis of {listed(declared.item_axes)} otherwise than that "
        "of its inputs: if it gives a row for each item that it finds, batches whose rows do not add up are run row by "
        "row (docs/models.md#rows-that-are-no-rows)"
    )


def _giving_back(session: Any) -> Any:
    """The options of a run that gives all unused memory back to its GPU, even if the run fails; None without CUDA.

    The stream of a run that lacked memory keeps its share, and runs on other streams cannot use that: 398 of 400 rows
    that fit one at a time were refused (ONNX Runtime 1.31; `tests/cuda/test_cuda_failures.py`).
    """
    if CUDA not in session.get_providers():
        return None
    from onnxruntime import RunOptions  # noqa: PLC0415 - it is imported where its session is

    options = RunOptions()
    device = session.get_provider_options()[CUDA]["device_id"]
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", f"gpu:{device}")
    return options
