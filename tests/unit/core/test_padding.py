"""Requests of unequal lengths in one batch, each of which gets its own part of the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.builders import request, spec
from worker.core.failures import Code, RunFailure
from worker.core.records import Array, Batch, ClosedBy, Request
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


def of_length(length: int, rows: int = 1, offset: int = 0) -> Request:
    values = np.full((rows, length, 2), offset, "<f4")
    return request(offset, rows=rows, tensors=[values.tobytes()], shapes=((length, 2),))


def stack(*requests: Request, by: Signature | None = None) -> Batch:
    stacked, refused = Stacker(by or model()).stack(requests, ClosedBy.SIZE)
    assert stacked is not None
    assert not refused
    return stacked


def split(batch: Batch, *outputs: Array) -> Split:
    parted = Stacker(model()).split(batch, outputs)
    assert isinstance(parted, Split)
    return parted


def test_what_no_request_fills_is_padding() -> None:
    """Each request's rows stand at the beginning of the axis, in order."""
    stacked = stack(of_length(1, rows=2, offset=5), of_length(2, offset=6))

    assert stacked.shapes == ((2, 2),)
    np.testing.assert_array_equal(stacked.feeds["x"][:, :, 0], [[5, 9], [5, 9], [6, 6]])


def test_an_answer_is_as_long_as_its_request() -> None:
    """The output of the padding is cut off; an output without that axis stays whole."""
    batch = stack(of_length(3), of_length(4, offset=1))

    parted = split(batch, np.arange(8, dtype="f4").reshape(2, 4), np.array([[1], [2]], "f4"))

    (short, pooled), (long, _) = (prediction.outputs for prediction in parted.predicted)
    assert short.tolist() == [[0, 1, 2]]
    assert long.tolist() == [[4, 5, 6, 7]]
    assert pooled.tolist() == [[1]]


def test_nan_in_the_padding_is_nobodys() -> None:
    """A softmax over padding only gives NaN."""
    batch = stack(of_length(3), of_length(4, offset=1))

    parted = split(batch, np.array([[1, 2, 3, NAN], [1, 2, 3, 4]], "f4"), np.ones((2, 1), "f4"))

    assert len(parted.predicted) == 2
    assert not parted.refused


def test_nan_in_a_requests_own_part_is_its_own() -> None:
    """Its neighbour in that padded batch gets an answer."""
    batch = stack(of_length(3), of_length(4, offset=1))

    parted = split(batch, np.array([[1, 2, 3, 4], [1, 2, NAN, 4]], "f4"), np.ones((2, 1), "f4"))

    ((guilty, rejection),) = parted.refused
    assert guilty is batch.requests[1]
    assert rejection.code is Code.INTERNAL
    assert "output each" in rejection.message


@pytest.mark.parametrize("shape", [(1, 3), (1,)])
def test_an_output_of_another_length_fails_the_run(shape: Sequence[int]) -> None:
    """If it were cut back, a request would get values that are not its own."""
    parted = Stacker(model()).split(stack(of_length(3)), [np.ones(shape, "f4"), np.ones((1, 1), "f4")])

    assert isinstance(parted, RunFailure)
    assert "input x axis 1 is 4 long in the batch" in parted.message


def test_halves_of_a_padded_batch_stay_padded() -> None:
    """They run in the bucket of the whole batch."""
    first, second = halve(stack(of_length(1), of_length(2), of_length(2)))

    assert first.shapes == second.shapes == ((2, 2),)
    assert (first.rows, second.rows) == (1, 2)
