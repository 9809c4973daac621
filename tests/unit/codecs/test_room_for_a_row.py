"""A model whose single row already exceeds a limit is reported before its first request."""

from __future__ import annotations

import pytest

from worker.codecs.message_sizes import lack_of_room, longest_key
from worker.codecs.records.mapping import RecordMapping
from worker.codecs.wire_contract import Wire
from worker.core.failures import BadConfiguration
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.settings import RecordsSettings

IMAGE = TensorSpec("image", "FP32", (10,))
LABEL = TensorSpec("label", "BYTES", ())
SIGNATURE = Signature("m", "1", (IMAGE, LABEL), (TensorSpec("y", "FP64", (3,)),))


def lacks(request: int, answer: int) -> list[str]:
    return lack_of_room(SIGNATURE, Wire("answers", "g", max_request_bytes=request, max_answer_bytes=answer))


def test_a_row_that_fits_is_not_told_of() -> None:
    """The limit is exact: each row has 40 bytes of numbers in and 24 out; texts count as nothing."""
    assert lacks(40, 24) == []


def test_a_row_that_no_request_may_bring_is_told_of_with_the_setting() -> None:
    """Otherwise every request would be rejected."""
    (why,) = lacks(39, 24)

    assert "a request of one row has 40 bytes and more, and WORKER_KAFKA__MAX_REQUEST_BYTES is 39" in why


def test_a_record_may_be_shorter_than_its_tensors() -> None:
    """A constant and a choice of names take more there than in the record, so that nothing is told."""
    mapping = RecordMapping(RecordsSettings(), SIGNATURE)

    assert lack_of_room(SIGNATURE, Wire("answers", "g", max_request_bytes=1, records=mapping)) == []


def test_an_answer_that_its_topic_does_not_take_is_told_of_with_the_topic() -> None:
    """Otherwise every answer would become an error."""
    (why,) = lacks(40, 23)

    assert "the answer to one row has 24 bytes and more, and topic answers takes records of 23" in why


def test_a_key_has_the_room_that_a_state_leaves_it() -> None:
    """The limit is exact: 100 bytes are for the record. A tombstone must fit too, however small a state is."""
    assert longest_key("states", 1000, 400) == 500
    assert longest_key("states", 1000, 25) == 1000 - 100 - 35
    assert longest_key("states", 501, 400) == 1


def test_a_state_without_room_for_any_key_is_refused_with_the_topic() -> None:
    """No request could be answered."""
    with pytest.raises(BadConfiguration, match=r"has 400 bytes, and topic states takes records of 500: none could be"):
        longest_key("states", 500, 400)
