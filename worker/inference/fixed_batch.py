"""Pads the batches of a model that always runs with one number of rows.

The model was exported for that number, or a run of another number costs more than the added rows. Added rows are copies
of the last one, which the model has to answer anyway. The outputs are cut back, so that no caller sees an added row.
Each run takes as long as a full one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.inference.declared_signature import Declared
from worker.inference.facts import Padding
from worker.inference.session import CUDA, TENSORRT, Session

if TYPE_CHECKING:
    from worker.settings import ModelSettings

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
PLANNED_ANEW = "on CUDA a convolution is planned anew for a batch of other rows than the one before it"


def padding_of(
    session: Session,
    operators: frozenset[str],
    declared: Declared,
    settings: ModelSettings,
    max_batch_size: int,
    max_batch_bytes: int | None,
) -> Padding | None:
    """The padding of a model that has these operators; None if batches run as they are.

    On CUDA ONNX Runtime keeps one plan for each convolution, the last run's. A ResNet-50 in FP16 took 0.25 s in each
    run of another number of rows, warmed up or not, and otherwise 8 ms at 64 rows (H200, ONNX Runtime 1.31, 2026-11).
    TensorRT plans by itself.
    """
    if declared.fixed_rows is not None:
        return Padding(declared.fixed_rows, "the model was exported for so many rows", is_exported=True)
    sizes = [spec.row_bytes for spec in declared.signature.inputs]
    row_bytes = 0 if declared.signature.axes or None in sizes else sum(size or 0 for size in sizes)
    providers = session.get_providers()
    plans_anew = operators & CONVOLUTIONS and CUDA in providers and TENSORRT not in providers
    if settings.full_batches == "never" or not row_bytes or not plans_anew:
        return None
    rows = max_batch_size if max_batch_bytes is None else min(max_batch_size, max_batch_bytes // row_bytes)
    return Padding(rows, PLANNED_ANEW) if rows > 1 else None
