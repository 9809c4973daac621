"""A model of which not even one row fits is told of before its first request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worker.codecs import Wire, lack_of_room
from worker.core.failures import RunFailure
from worker.core.records import Array
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

IMAGE = TensorSpec("image", "FP32", (10,))
LABEL = TensorSpec("label", "BYTES", ())
SIGNATURE = Signature("m", "1", (IMAGE, LABEL), (TensorSpec("y", "FP64", (3,)),))
ROW = {"image": np.zeros((1, 10), np.float32), "label": np.array(["a"], object)}
ANSWER = [np.zeros((4, 3))]  # of four rows


class Loaded(NamedTuple):
    """A model that runs."""

    signature: Signature

    def blank(self, rows: int) -> Mapping[str, Array]:
        assert rows == 1
        return ROW

    def probe(self) -> Sequence[Array] | RunFailure:
        return ANSWER


def lacks(request: int, answer: int, signature: Signature = SIGNATURE) -> list[str]:
    return lack_of_room(Loaded(signature), Wire("answers", "g", max_request_bytes=request, max_answer_bytes=answer))


def test_a_row_that_fits_is_not_told_of() -> None:
    """To the byte: 40 of numbers go in and 24 come out for each row; texts count as nothing."""
    assert lacks(40, 24) == []


def test_a_row_that_no_request_may_bring_is_told_of_with_the_setting() -> None:
    """Every request would be rejected."""
    (why,) = lacks(39, 24)

    assert "a request of one row has 40 bytes and more, and WORKER_KAFKA__MAX_REQUEST_BYTES is 39" in why


def test_an_answer_that_its_topic_does_not_take_is_told_of_with_the_topic() -> None:
    """Every answer would become an error."""
    (why,) = lacks(40, 23)

    assert "the answer to one row has 24 bytes and more, and topic answers takes records of 23" in why


def test_an_input_that_requests_leave_out_takes_no_room() -> None:
    """It is filled in when the request has come."""
    filled_in = TensorSpec("image", "FP32", (10,), default=0.0)

    assert lacks(1, 24, Signature("m", "1", (filled_in, LABEL), SIGNATURE.outputs)) == []


def test_a_model_that_does_not_run_has_no_room_to_be_told_of() -> None:
    """It ran when it was warmed up; what ails it now shows with the first batch."""

    class Failing(Loaded):
        def probe(self) -> RunFailure:
            return RunFailure("the device is gone")

    wire = Wire("answers", "g", max_request_bytes=0, max_answer_bytes=0)

    assert lack_of_room(Failing(SIGNATURE), wire) == []
