"""Samples of lengths: from lines, and from requests."""

from __future__ import annotations

import pytest

from tests.fakes import MODEL
from worker.core.failures import BadConfiguration, Code
from worker.core.records import Partition, Record, Rejection, Reply, Request
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.tools.profile.engine.axes import axis_of
from worker.tools.profile.engine.lengths import of_lines, of_requests

RECORD = Record(Partition("requests", 0), 0, None, None, (), None)
REPLY = Reply("application/json")
AXIS = axis_of(Signature("m", "1", (TensorSpec("x", "FP32", (3,)), TensorSpec("ids", "INT64", (2, None))), ()), None)


def request(length: int, rows: int = 1) -> Request:
    return Request(RECORD, rows, (b"", b""), ((3,), (2, length)), REPLY, 0, MODEL)


def test_each_line_is_the_length_of_one_request() -> None:
    """With as many rows as requests have; blank lines say nothing."""
    sample = of_lines(["7\n", " 12 \n", "\n", "3"], "file", 2)

    assert sample.lengths.tolist() == [7, 7, 12, 12, 3, 3]
    assert (sample.requests, sample.rows_per_request) == (3, 2.0)


@pytest.mark.parametrize("line", ["abc", "0", "-4", "1.5", "1000001", "3 4"])
def test_a_line_that_is_no_length_is_refused_by_its_number(line: str) -> None:
    """In one sentence."""
    with pytest.raises(BadConfiguration) as refusal:
        of_lines(["5", line], "file", 1)

    told = f"--lengths file: line 2: expected a length between 1 and 1,000,000, got {line!r}"
    assert str(refusal.value) == told


def test_a_file_without_lengths_is_refused() -> None:
    """There is nothing to advise for."""
    with pytest.raises(BadConfiguration, match="there are no lengths in it; give one on each line"):
        of_lines(["", "  "], "file", 1)


def test_a_request_counts_with_all_its_rows() -> None:
    """By its length along the axis; what is no request is counted, with the first reason."""
    refused = Rejection(RECORD, Code.INVALID_ARGUMENT, "no JSON", REPLY)

    sample = of_requests([request(9, rows=2), refused, request(4)], AXIS, "requests")

    assert sample.lengths.tolist() == [9, 9, 4]
    assert (sample.requests, sample.rows_per_request) == (2, 1.5)
    assert (sample.refused, sample.why) == (1, "no JSON")


@pytest.mark.parametrize(
    ("decoded", "told"),
    [
        ([], "--lengths-from requests: there are no records in it"),
        (
            [Rejection(RECORD, Code.INVALID_ARGUMENT, "no JSON", REPLY)] * 2,
            "--lengths-from requests: none of 2 records is a request for this model; of the first, no JSON",
        ),
    ],
)
def test_a_topic_without_requests_is_refused(decoded: list[Request | Rejection], told: str) -> None:
    """With what it has instead."""
    with pytest.raises(BadConfiguration) as refusal:
        of_requests(decoded, AXIS, "requests")

    assert str(refusal.value) == told
