"""One loaded model: warm, run by the lanes, and asked again when its device is in doubt.

Made by `model_loading.load`. Owns the session. `Model.run` may be called from several threads at once, and never raises
for what one batch may do to a model.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import onnxruntime as ort

from worker.core.failures import Code, RowsLost, RunFailure
from worker.core.records import Array
from worker.core.tensors.buckets import Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.inference.onnxruntime_errors import ORT_ERRORS, run_failure
from worker.inference.running.arena import giving_back
from worker.inference.running.device import Device, Opened, is_accelerated, left_to_cpu
from worker.inference.running.fixed_batch import FixedBatch, Padding
from worker.inference.start_checks.bucket_checks import BucketChecks
from worker.inference.start_checks.warm_up import WarmUp, is_finite
from worker.inference.start_checks.warm_up_rows import ExampleRows, Feeds


class Model:
    """One loaded model. `device` says where it runs and why, `load` has run it."""

    def __init__(
        self,
        opened: Opened,
        signature: Signature,
        row_counts: Iterable[int],
        padding: Padding | None = None,
        operators: frozenset[str] = frozenset(),
        example: ExampleRows | None = None,
    ) -> None:
        """Warms up at these row counts; with a `padding` it runs at no other than that has.

        `operators` are those of its that `row_independence` asks for; `example` is what to run.
        Raises `BadConfiguration` when the model fails or loses rows there.
        """
        self._session: ort.InferenceSession = opened.session
        self._giving_back = giving_back(opened.session)
        self.device: Device = opened.device
        self.operators = operators
        self.signature = signature  # of the outputs only what the file claims, until they are seen
        self._output_names = [spec.name for spec in signature.outputs]
        self.padding = padding
        self._fixed = None if padding is None else FixedBatch(padding.rows, self._output_names)
        self.warmed_up_at = tuple(sorted(set(row_counts)))
        self._probe_rows = self.warmed_up_at[0]
        self._example = example
        began = time.monotonic()
        warm_up = WarmUp(signature, self._outputs, is_fixed=padding is not None and padding.is_exported)
        self._blank = warm_up.rows_that_run(example, self._probe_rows)
        outputs, *_ = [warm_up.outputs(self._blank, rows) for rows in self.warmed_up_at]
        self._is_finite = [is_finite(output) for output in outputs]
        is_fixed = not any(None in spec.dims for spec in signature.inputs)
        seen = [_as_seen(*pair, is_fixed=is_fixed) for pair in zip(signature.outputs, outputs, strict=True)]
        self._misdeclared = [(old, new) for old, new in zip(signature.outputs, seen, strict=True) if _differ(old, new)]
        self.signature = replace(signature, outputs=tuple(seen))
        self.warm_up_seconds = time.monotonic() - began
        self.signature = replace(self.signature, axes=self._bucket_checks.axes())

    def most_rows(self, wanted: int) -> int:
        """How many rows of a batch that may have so many the model takes at once."""
        return wanted if self._fixed is None else min(wanted, self._fixed.rows)

    def run(self, feeds: Feeds) -> Sequence[Array] | RunFailure:
        """One inference: arrays of shape (rows, *dims), in the signature's order of outputs, or why there are none.

        One that lacks memory on a GPU is tried once more, when what no run uses has been given back (`arena.py`).
        The outputs' shapes and values are the model's, unchecked; no later run writes to them. Raises `ModelBroken`
        when the device is lost.
        """
        outcome = self._outcome(feeds)
        lacks_memory = isinstance(outcome, RunFailure) and outcome.code is Code.RESOURCE_EXHAUSTED
        if self._giving_back is None or not lacks_memory:
            return outcome
        self._outcome(self.blank(self._probe_rows), self._giving_back)
        return self._outcome(feeds)

    @property
    def is_accelerated(self) -> bool:
        """Whether it runs on a GPU, which the loop's thread should keep busy and not wait for."""
        return is_accelerated(self._session)

    @property
    def left_to_cpu(self) -> Mapping[str, int]:
        """Nodes that a GPU was to run and does not, by operator: their tensors are copied there and back."""
        return left_to_cpu(self._session) if self.is_accelerated else {}

    def probe(self) -> Sequence[Array] | RunFailure:
        """Run the warm-up batch again: a failure unless it still gives all rows, and finite ones where it gave them."""
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
    def not_finite(self) -> Sequence[str]:
        """The outputs with NaN or infinity for the rows of the probe, which it cannot judge by them."""
        return [spec.name for spec, was in zip(self.signature.outputs, self._is_finite, strict=True) if not was]

    @property
    def misdeclared(self) -> str | None:
        """Which outputs are not as the file declares them, and what follows from that; None where all are."""
        if not self._misdeclared:
            return None
        found = ", ".join(f"{new} (declared {old})" for old, new in self._misdeclared)
        return (
            f"the model gives {found}: requesters are told what it gives; export it so that its file says so "
            "(torch.onnx.export: dynamic_shapes, or dynamic_axes of the outputs too)"
        )

    @property
    def example_rows(self) -> int:
        """How many rows of its own the operator's example has; 0: there is none."""
        return 0 if self._example is None else self._example.rows

    def blank(self, rows: int, lengths: Mapping[Spot, int] = {}, value: int | None = None) -> Feeds:
        """So many rows as the warm-up ran, of the operator's example, else all zeros or all ones: it runs on them.

        Padded axes are as long as in a bucket. With other `lengths` of dynamic axes, or another `value` where there is
        no example, the model may fail. A mask of zeros may cost less than one of ones.
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

    def _outcome(self, feeds: Feeds, options: ort.RunOptions | None = None) -> Sequence[Array] | RunFailure:
        try:
            return self._outputs(feeds, options)
        except ORT_ERRORS as error:
            return run_failure(error)

    def _outputs(self, feeds: Feeds, options: ort.RunOptions | None = None) -> Sequence[Array]:
        """By a plain run, on a GPU too: docs/decisions.md says why."""
        outputs: Sequence[Array]
        if self._fixed is None:
            outputs = self._session.run(self._output_names, feeds, options)
            return outputs
        outputs = self._session.run(self._output_names, self._fixed.padded(feeds), options)
        return self._fixed.cut(outputs, len(next(iter(feeds.values()))))

    def __repr__(self) -> str:
        return f"<Model {self.signature.name} version {self.signature.version} on {self.device.name}>"


def _as_seen(spec: TensorSpec, output: Array, *, is_fixed: bool) -> TensorSpec:
    """The output as the model gives it: many a file does not say how many dimensions an output has, or says it wrongly.

    A dimension that is another one than the file says is as long as it came where all inputs are of fixed size.
    """
    if len(spec.dims) != output.ndim - 1:
        return replace(spec, dims=(None,) * (output.ndim - 1), symbols=())
    came = zip(spec.dims, output.shape[1:], strict=True)
    return replace(spec, dims=tuple(dim if dim in (None, n) else n if is_fixed else None for dim, n in came))


def _differ(declared: TensorSpec, seen: TensorSpec) -> bool:
    """Whether the file says something else; that it says nothing is usual."""
    return len(declared.dims) == len(seen.dims) and declared.dims != seen.dims
