"""CUDA's results are the CPU's, within a tolerance for the type, whatever shares the batch.

A tolerance is a part of the largest number in the output. TF32 and FP16 keep eleven bits of a number, FP32 twenty-four;
the nets add a few thousand products in some dozens of layers. The tolerances were stated before a GPU ran these tests:
restate one that a GPU misses, or keeps by far.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu.nets import NETS, Feeds, in_half, on_cpu, on_gpu, outputs
from worker.core.records import Array
from worker.inference.model import Model

FP32, TF32, FP16 = 1e-4, 1e-2, 2e-2
ROWS = 24  # no power of two, so not warmed up
EVERY_NET = pytest.mark.parametrize("name", NETS)


def assert_near(found: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> None:
    """Fail the test unless every output is near, relative to its largest number."""
    for ours, theirs in zip(found, wanted, strict=True):
        error = np.abs(ours.astype(np.float64) - theirs).max() / np.abs(theirs).max()

        assert error <= tolerance, f"off by {error:.1e} of the largest number"


def assert_alone_as_together(model: Model, feeds: Feeds) -> None:
    """Fail the test unless parts of a batch give their results of the whole batch."""
    together = outputs(model, feeds)
    for first, size in ((0, 1), (1, 1), (2, 7), (9, 15)):
        part = slice(first, first + size)
        alone = outputs(model, {key: value[part] for key, value in feeds.items()})

        assert_near(alone, [output[part] for output in together], FP32)


def as_floats(feeds: Feeds, dtype: type[np.floating[Any]]) -> Feeds:
    """The feeds with all floats of this type."""
    return {name: array.astype(dtype) if array.dtype.kind == "f" else array for name, array in feeds.items()}


@EVERY_NET
@pytest.mark.parametrize(("has_tf32", "tolerance"), [(False, FP32), (True, TF32)], ids=["FP32", "TF32"])
def test_answers_are_those_of_the_cpu(name: str, has_tf32: bool, tolerance: float, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of pytest's
    """CUDA computes FP32 in TF32 unless an option says otherwise."""
    net = NETS[name]
    model, feeds = net.build(), net.feeds(ROWS)

    found = outputs(on_gpu(tmp_path, model, has_tf32=has_tf32), feeds)

    assert_near(found, on_cpu(model, feeds), tolerance)


@EVERY_NET
def test_answers_in_half_precision_are_those_of_the_cpu_in_full(name: str, tmp_path: Path) -> None:
    """The CPU gets equal inputs, and the weights before rounding."""
    net = NETS[name]
    model, feeds = net.build(), as_floats(net.feeds(ROWS), np.float16)

    found = outputs(on_gpu(tmp_path, in_half(model)), feeds)

    assert_near(found, on_cpu(model, as_floats(feeds, np.float32)), FP16)


@EVERY_NET
def test_what_shares_the_batch_changes_no_answer(name: str, tmp_path: Path) -> None:
    """Libraries take other kernels for other numbers of rows: only the last bits may differ."""
    net = NETS[name]
    assert_alone_as_together(on_gpu(tmp_path, net.build()), net.feeds(ROWS))


def test_a_convolution_runs_at_one_number_of_rows(tmp_path: Path) -> None:
    """A short batch is padded, which changes no answer: cuDNN would plan anew for another number of rows."""
    net = NETS["ResNet-50"]
    model = on_gpu(tmp_path, net.build(), rows=ROWS, full_batches="auto")

    assert model.padding is not None
    assert (model.padding.rows, model.warmed_up_at) == (ROWS, (ROWS,))
    assert_alone_as_together(model, net.feeds(ROWS))
