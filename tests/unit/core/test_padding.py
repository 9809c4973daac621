"""Records of unequal lengths in one batch, each of which gets its own part of the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.chunks import batch, chunk, offsets, spec
from worker.core.chunk import Batch, Chunk, Prediction
from worker.core.failures import Code, RunFailure
from worker.core.records import Array
from worker.core.tensors.buckets import Axis, Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.core.tensors.stacking import Split, Stacker, halve

NAN = float("nan")


def model(datatype: str = "FP32", pad: float | str = 9) -> Signature:
    """A model of x (batch, n, 2), padded to 2 or 4, that gives each (batch, n) and pooled (batch, 1)."""
    return Signature(
        "m",
        "1",
        (TensorSpec("x", datatype, (None, 2)),),
        (spec("each", dims=(None,)), spec("pooled")),
        axes=(Axis("input x axis 1", (2, 4), {Spot(0, 0): pad}, (Spot(0, 0),)),),
    )


def of_lengths(*lengths: int, rows: int | list[int] = 1, first: int = 0) -> Chunk:
    """A chunk of one record for each length; all values of a record are its offset, counted from `first`."""
    ids = range(first, first + len(lengths))
    return chunk(*ids, rows=rows, shapes=[((length, 2),) for length in lengths])


def stack(*chunks: Chunk, by: Signature | None = None) -> Batch:
    return batch(*chunks, by=Stacker(by or model()))


def split(stacked: Batch, *outputs: Array) -> Split:
    parted = Stacker(model()).split(stacked, outputs)
    assert isinstance(parted, Split)
    return parted


def own_parts(prediction: Prediction) -> list[list[list[object]]]:
    """Each record's own part of each output."""
    answered, outputs, stop, _ = prediction
    found: list[list[list[object]]] = []
    for rows, shapes in zip(answered.rows, answered.shapes, strict=True):
        start, stop = stop, stop + rows
        found.append([part.tolist() for part in model().buckets.own_parts(outputs, shapes, start, stop)])
    return found


def test_an_input_without_a_padded_axis_goes_as_it_is() -> None:
    """The lengths of a padded input are not taken for its own, even if they are equal before padding."""
    axes = (Axis("input ids axis 1", (4,), {Spot(0, 0): 0}),)
    inputs = (TensorSpec("ids", "FP32", (None,)), TensorSpec("weights", "FP32", (3,)), TensorSpec("scale", "FP32", ()))
    by = Signature("m", "1", inputs, (spec(),), axes=axes)

    feeds = stack(chunk(1, 2, rows=[1, 2], shapes=((3,), (3,), ())), by=by).feeds

    assert feeds["ids"].tolist() == [[1, 1, 1, 0], [2, 2, 2, 0], [2, 2, 2, 0]]
    assert feeds["weights"].tolist() == [[1, 1, 1], [2, 2, 2], [2, 2, 2]]
    assert feeds["scale"].tolist() == [1, 2, 2]


def test_an_answer_is_as_long_as_its_record() -> None:
    """The output of the padding is cut off; an output without that axis stays whole."""
    stacked = stack(of_lengths(3, 4))

    [predicted] = split(stacked, np.arange(8, dtype="f4").reshape(2, 4), np.array([[1], [2]], "f4")).predicted

    assert own_parts(predicted) == [[[[0, 1, 2]], [[1]]], [[[4, 5, 6, 7]], [[2]]]]


def test_nan_in_the_padding_is_nobodys() -> None:
    """A softmax over padding only gives NaN."""
    stacked = stack(of_lengths(3, 4))

    parted = split(stacked, np.array([[1, 2, 3, NAN], [1, 2, 3, 4]], "f4"), np.ones((2, 1), "f4"))

    assert offsets([one.chunk for one in parted.predicted]) == [0, 1]
    assert not parted.refused


@pytest.mark.parametrize("bad", range(3))
def test_nan_in_a_records_own_part_is_its_own(bad: int) -> None:
    """Its neighbours in that padded batch get an answer, be it the first, the last, or one in the middle."""
    stacked = stack(of_lengths(3, 4, 3, rows=[1, 2, 1]))
    each = np.ones((4, 4), "f4")
    each[[0, 2, 3][bad], 2] = NAN

    parted = split(stacked, each, np.ones((4, 1), "f4"))

    ((guilty, at, rejection),) = parted.refused
    assert (guilty, at, rejection.record.offset) == (stacked.chunks[0], bad, bad)
    assert rejection.code is Code.INTERNAL
    assert "output each" in rejection.message
    assert offsets([one.chunk for one in parted.predicted]) == [at for at in range(3) if at != bad]
    starts = {one.chunk.records[0].offset: one.start for one in parted.predicted}
    assert starts == [{1: 1}, {0: 0, 2: 3}, {0: 0}][bad]


@pytest.mark.parametrize("shape", [(1, 3), (1,)])
def test_an_output_of_another_length_fails_the_run(shape: Sequence[int]) -> None:
    """If it were cut back, a record would get values that are not its own."""
    parted = Stacker(model()).split(stack(of_lengths(3)), [np.ones(shape, "f4"), np.ones((1, 1), "f4")])

    assert isinstance(parted, RunFailure)
    assert "input x axis 1 is 4 long in the batch" in parted.message


def test_halves_of_a_padded_batch_stay_padded() -> None:
    """They run in the bucket of the whole batch."""
    first, second = halve(stack(of_lengths(1, 2, 2)))

    assert first.shapes == second.shapes == ((2, 2),)
    assert (first.rows, second.rows) == (1, 2)
