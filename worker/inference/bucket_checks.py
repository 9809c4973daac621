"""Checks the padded axes of a model before requests come: which outputs have them, and whether each bucket runs.

A model's file says little about that, so blank batches of several lengths are run. Refuses buckets and axes that would
fail request by request later. Owns nothing; the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from worker.core.failures import BadConfiguration
from worker.core.records import Array
from worker.core.tensors.axes import other_lengths, unpadded_in_place, with_outputs
from worker.core.tensors.buckets import Axis, tokens
from worker.core.tensors.signature import Signature
from worker.inference.onnxruntime_errors import readable
from worker.inference.session import RUN_ERRORS
from worker.inference.warm_up import Feeds, Lengths


class BucketChecks:
    """Tries the padded axes of one signature."""

    def __init__(
        self,
        signature: Signature,
        feeds: Callable[[int, Lengths], Feeds],
        run: Callable[[Feeds], Sequence[Array]],
        rows: int,
    ) -> None:
        """`feeds` makes so many blank rows with axes of these lengths; `run` raises one of `RUN_ERRORS`.

        `rows` is a number of rows that is known to run.
        """
        self._signature, self._feeds, self._run, self._rows = signature, feeds, run, rows

    def axes(self) -> tuple[Axis, ...]:
        """The axes, each with the outputs that two runs show to have it. Raises `BadConfiguration`."""
        for axis in self._signature.axes:
            self._check_apart(axis)
        return tuple(map(self._with_outputs, self._signature.axes))

    def run_each(self, row_counts: Sequence[int], max_rows: int, max_tokens: int | None, max_bytes: int | None) -> None:
        """Run each bucket at the row counts that its batches may have, or else at the one that is known to run.

        Raises `BadConfiguration` for a bucket that the model does not take.
        """
        axes, buckets = self._signature.axes, self._signature.buckets
        for lengths in product(*(axis.boundaries for axis in axes)):
            at = {spot: n for axis, n in zip(axes, lengths, strict=True) for spot in axis.inputs}
            shapes = tuple(feed.shape[1:] for feed in self._feeds(1, at).values())
            most = max_rows if max_tokens is None else min(max_rows, max_tokens // tokens(shapes))
            if max_bytes is not None:
                most = min(most, max_bytes // buckets.row_bytes(shapes))
            bucket = "x".join(map(str, lengths))
            for rows in [n for n in row_counts if n <= most] or [self._rows]:
                if wrong := buckets.misfit(self._run_at(rows, at, bucket), shapes):
                    raise BadConfiguration(f"the bucket {bucket} of WORKER_BATCHING__BUCKETS: {wrong}: leave it out")

    def _check_apart(self, axis: Axis) -> None:
        """Raises `BadConfiguration` for an unpadded axis that must be as long as this one: no request would fit.

        At length 1 that axis would be broadcast, and the run would prove nothing.
        """
        length = axis.boundaries[-1]
        others = unpadded_in_place(self._signature, axis) if length > 1 else ()
        together = dict.fromkeys((*axis.inputs, *others), length)
        for spot in others:
            if self._does_run(together) and not self._does_run({**together, spot: length - 1 if length > 2 else 3}):
                name = self._signature.inputs[spot.tensor].name
                raise BadConfiguration(
                    f"WORKER_BATCHING__BUCKETS: {axis.name} is padded, and axis {spot.dimension + 1} of {name} has to "
                    "be as long: name it in shared_by"
                )

    def _does_run(self, lengths: Lengths) -> bool:
        try:
            self._run(self._feeds(self._rows, lengths))
        except RUN_ERRORS:
            return False
        return True

    def _with_outputs(self, axis: Axis) -> Axis:
        first, *others = axis.boundaries[0], *other_lengths(axis)
        at_first = self._run_at(self._rows, dict.fromkeys(axis.inputs, first), str(first))
        if axis.boundaries == (1,):
            return axis  # nothing is ever padded
        for other in others:
            try:
                at_other = self._run_at(self._rows, dict.fromkeys(axis.inputs, other), str(other))
            except BadConfiguration:
                if len(axis.boundaries) > 1:
                    raise
                continue
            short, long = ([output.shape for output in outputs] for outputs in (at_first, at_other))
            return with_outputs(self._signature, axis, (first, other), (short, long))
        raise BadConfiguration(
            f"the model runs where {axis.name} is {first} long, and at none of {', '.join(map(str, others))}, so it "
            "does not show which outputs are as long: give a second boundary in WORKER_BATCHING__BUCKETS"
        )

    def _run_at(self, rows: int, lengths: Lengths, bucket: str) -> Sequence[Array]:
        try:
            return self._run(self._feeds(rows, lengths))
        except RUN_ERRORS as error:
            raise BadConfiguration(
                f"the model fails in the bucket {bucket} of WORKER_BATCHING__BUCKETS: {readable(error)}"
            ) from error
