"""The choice of the padded axis, the lengths of rows along it, and the ends of buckets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from worker.core.failures import BadConfiguration
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.tools.profile.buckets import BucketAdvice, axis_of, buckets_for, lengths_of_lines

IDS = TensorSpec("ids", "INT64", (None,), ("sequence",))
MASK = TensorSpec("mask", "INT64", (None,), ("sequence",))
KINDS = TensorSpec("kinds", "INT64", (None,), ("kinds_length",))
FIXED = TensorSpec("x", "FP32", (3,), (None,))


def signature(*inputs: TensorSpec) -> Signature:
    return Signature("m", "1", inputs, ())


def buckets(lengths: list[int], count: int) -> BucketAdvice:
    return buckets_for(axis_of(signature(FIXED, IDS, MASK), None), np.array(lengths, np.int64), count, 4)


def test_buckets_end_at_quantiles() -> None:
    """They are rounded up to eights, up to the longest row; equal shares fill equally fast."""
    found = buckets(list(range(1, 101)), 4)

    assert found.boundaries == [32, 56, 80, 100]
    assert found.setting == '{"ids": {"axis": 1, "boundaries": [32, 56, 80, 100], "pad": 0}}'
    assert 0 < found.after < 0.25
    assert found.mean_padded == pytest.approx(63, abs=1)


def test_padding_before_is_that_of_batches_as_rows_come() -> None:
    """Each batch is padded to its longest row."""
    assert buckets([8, 8, 8, 16, 8, 8, 8, 16], 2).before == pytest.approx(1 - 80 / 128)


@pytest.mark.parametrize(
    ("inputs", "asked", "named", "spots"),
    [
        ((FIXED, IDS, MASK), None, "ids:1", {(1, 0), (2, 0)}),
        ((IDS, MASK), "mask:1", "mask:1", {(0, 0), (1, 0)}),
        ((TensorSpec("a", "FP32", (None, None)),), "a:2", "a:2", {(0, 1)}),
    ],
)
def test_axes_with_one_name_are_padded_as_one(
    inputs: tuple[TensorSpec, ...], asked: str | None, named: str, spots: set[tuple[int, int]]
) -> None:
    """The mask of a text is an example."""
    axis = axis_of(signature(*inputs), asked)

    assert (str(axis), set(axis.spots)) == (named, spots)


@pytest.mark.parametrize(
    ("inputs", "asked", "told"),
    [
        ((FIXED,), None, "which dynamic axis lengths are about, none"),
        ((IDS, KINDS), None, "say by --bucket-axis which dynamic axis lengths are about, ids:1 or kinds:1"),
        ((IDS,), "ids:2", "--bucket-axis ids:2: expected a dynamic axis, ids:1 (the batch is axis 0)"),
        ((IDS,), "ids", "--bucket-axis ids: expected a dynamic axis, ids:1 (the batch is axis 0)"),
    ],
)
def test_what_is_no_axis_to_pad_is_refused_with_the_axes_that_are(
    inputs: tuple[TensorSpec, ...], asked: str | None, told: str
) -> None:
    """The refusal is one sentence."""
    with pytest.raises(BadConfiguration) as refusal:
        axis_of(signature(*inputs), asked)

    assert told in str(refusal.value)


def test_lengths_stand_one_on_each_line(tmp_path: Path) -> None:
    """Each length counts for as many rows as a request has."""
    path = tmp_path / "lengths.txt"
    path.write_text("5\n\n12\n")

    assert lengths_of_lines(str(path), 2).tolist() == [5, 5, 12, 12]


@pytest.mark.parametrize("content", ["", "0\n", "1000001\n", "5\nlong\n", None])
def test_what_is_no_length_is_refused(tmp_path: Path, content: str | None) -> None:
    """The refusal has the file's name."""
    path = tmp_path / "lengths.txt"
    if content is not None:
        path.write_text(content)

    with pytest.raises(BadConfiguration, match=r"--lengths .*lengths\.txt: "):
        lengths_of_lines(str(path), 1)
