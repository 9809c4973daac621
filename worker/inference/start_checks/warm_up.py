"""The first runs of a model, before any request: which rows it takes, and that it gives a row back for each.

Raises `BadConfiguration` with the cure where it does not. Owns nothing; the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from worker.core.failures import BadConfiguration
from worker.core.records import Array
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.inference.declared_signature import without
from worker.inference.onnxruntime_errors import ORT_ERRORS, is_out_of_memory, readable
from worker.inference.start_checks.warm_up_rows import ExampleRows, Feeds, UniformRows, WarmUpRows

# Sizes tried for dynamic dimensions at warm-up, until the model runs on one. 16: a short text, inside every table of
# positions. 64: an image whose side halves five times. 224: the image classifiers' usual side. 1: what is left.
TRIED_DIMENSIONS = (16, 64, 224, 1)
# And a second of sound, where each row is one line of numbers: the first layers of speech models span 400 samples.
# Elsewhere it could be the side of an image, or the length of a text.
SECOND_OF_SOUND = 16_000

# The warm-up runs so many rows whatever MAX_BATCH_SIZE is.
ALWAYS_RUN = 2


class WarmUp:
    """Runs one model for the first time. `is_fixed`: it was exported for one number of rows."""

    def __init__(self, signature: Signature, run: Callable[[Feeds], Sequence[Array]], *, is_fixed: bool) -> None:
        """`run` raises what ONNX Runtime does."""
        self._signature, self._run, self._is_fixed = signature, run, is_fixed

    def rows_that_run(self, example: ExampleRows | None, rows: int) -> WarmUpRows:
        """The operator's example, each row of which runs; without one the first made-up rows that do."""
        if example is None:
            return self._first_that_runs(rows)
        for at, row in enumerate(example.each()):
            try:
                self._run(row.batch(self._signature, rows, {}))
            except ORT_ERRORS as error:
                if is_out_of_memory(error):
                    raise BadConfiguration(self._too_large(rows, error)) from error
                raise BadConfiguration(
                    f"the model fails on row {at} of WORKER_MODEL__WARM_UP_EXAMPLE, give values that it takes: "
                    f"{readable(error)}"
                ) from error
        return example

    def outputs(self, of: WarmUpRows, rows: int) -> Sequence[Array]:
        """What so many rows give: as many rows of each output."""
        try:
            outputs = self._run(of.batch(self._signature, rows, {}))
        except ORT_ERRORS as error:
            raise BadConfiguration(self._too_much(rows, error)) from error
        check_rows(self._signature.outputs, outputs, rows)
        return outputs

    def _first_that_runs(self, rows: int) -> UniformRows:
        """The first with finite answers, as others do not show what a device makes of them; else the first that runs.

        Raises `BadConfiguration` with the failure of the first ones tried.
        """
        dimensions = self._dimensions()
        failures: list[Exception] = []
        ran: UniformRows | None = None
        # Zeros first: they are in every table. Ones for a model that divides by its input, or by the sum of a mask.
        for uniform in [UniformRows(dimension, value) for value in (0, 1) for dimension in dimensions]:
            if ran is not None and uniform.dimension != ran.dimension:
                continue
            try:
                outputs = self._run(uniform.batch(self._signature, rows, {}))
            except ORT_ERRORS as error:
                failures.append(error)
                continue
            if all(map(is_finite, outputs)):
                return uniform
            ran = ran or uniform
        if ran is not None:
            return ran
        raise BadConfiguration(self._fails_on_all(rows, failures[0], dimensions)) from failures[0]

    def _dimensions(self) -> Sequence[int]:
        """What to try for dynamic ones."""
        dynamic = [spec for spec in self._signature.inputs if None in spec.dims]
        if not dynamic:
            return TRIED_DIMENSIONS[:1]
        may_be_sound = any(spec.is_float for spec in dynamic) and all(spec.dims == (None,) for spec in dynamic)
        return (*TRIED_DIMENSIONS, SECOND_OF_SOUND) if may_be_sound else TRIED_DIMENSIONS

    def _fails_on_all(self, rows: int, failure: Exception, dimensions: Sequence[int]) -> str:
        """The cures are for a model that takes few sizes, for an encoder of categories, for a hidden row count."""
        if is_out_of_memory(failure):
            return self._too_large(rows, failure)
        has_defaults = len(self._signature.required) < len(self._signature.inputs)
        held = ", inputs with a default holding that" if has_defaults else ""
        tried = sizes = ""
        if len(dimensions) > 1:
            tried = f", with dynamic dimensions of {', '.join(map(str, dimensions))}"
            sizes = (
                "If it runs at one other size alone, fix those dimensions in the model (onnx.tools.update_model_dims). "
            )
        return (
            f"the model fails on warm-up batches of zeros and of ones{held}{tried}: "
            f"{readable(failure).rstrip('.')}. {sizes}"
            f"If it takes no such values{' or sizes' if sizes else ''}, give it some that it does: "
            "WORKER_MODEL__WARM_UP_EXAMPLE, a file of arrays by name (.npz) or a request (JSON); or export it so that "
            "it answers unknown ones, too (scikit-learn: OneHotEncoder(handle_unknown='ignore')). If a Reshape inside "
            "holds a number of rows, export it with a dynamic one (torch.onnx.export: dynamo=True)"
        )

    def _too_much(self, rows: int, error: Exception) -> str:
        if is_out_of_memory(error):
            return self._too_large(rows, error)
        return (
            f"the model runs on fewer rows but fails on {rows}: {readable(error)}. Export it so that it takes any "
            "number of rows: something inside, a Reshape most often, holds one (torch.onnx.export: dynamo=True)"
        )

    def _too_large(self, rows: int, error: Exception) -> str:
        """What to lower. Of the fewest rows that are ever run there is nothing to lower."""
        if self._is_fixed:
            cure = "export the model for fewer rows, or with a dynamic first axis"
        elif rows > ALWAYS_RUN:
            cure = "lower WORKER_BATCHING__MAX_BATCH_SIZE, and WORKER_MODEL__WARM_UP_ROWS where that is set"
        else:
            cure = "give it more memory, or export the model for smaller inputs"
        return f"not enough memory for {rows} row{'s' if rows > 1 else ''}: {cure} ({readable(error)})"


def check_rows(specs: Sequence[TensorSpec], outputs: Sequence[Array], rows: int) -> None:
    """Raises `BadConfiguration` for an output that has not a row for each that went in."""
    for spec, output in zip(specs, outputs, strict=True):
        if output.shape[:1] != (rows,):
            raise BadConfiguration(
                f"output {spec.name}: {rows} row{'s' if rows > 1 else ''} went in and shape {list(output.shape)} "
                "came out, so an answer cannot be given back to its request: export the model so that axis 0 of "
                f"every output is the batch{without(spec.name) if len(specs) > 1 else ''}"
            )


def is_finite(output: Array) -> bool:
    """Whether it has neither NaN nor infinity."""
    return output.dtype.kind != "f" or bool(np.isfinite(output).all())
